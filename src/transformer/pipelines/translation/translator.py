"""Translator: segments lines, searches for translations of the segments, and assembles these to lines."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, overload

import torch

from transformer.decoding import Search, Shortlist, keep_tokens, make_retokenizer
from transformer.errors import ConfigError
from transformer.pipelines.texts import texts_of
from transformer.pipelines.translation.alignment import Aligner
from transformer.pipelines.translation.assembly import Assembler
from transformer.pipelines.translation.config import TranslatorConfig, renamed_lexicon
from transformer.pipelines.translation.constraints import ConstraintTokenizer
from transformer.pipelines.translation.correction import Corrector
from transformer.pipelines.translation.flag_summary import FlagSummary
from transformer.pipelines.translation.results import Translation
from transformer.pipelines.translation.segment_search import (
    PendingSearch,
    SearchedSegment,
    SegmentSearcher,
    make_generator,
)
from transformer.pipelines.translation.segmentation import SegmentedLine, Segmenter
from transformer.pipelines.translation.terminology import Terminology
from transformer.pipelines.translation.unseen import UnseenCharacters
from transformer.runtime.threads import prepare_threads
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.pair import TokenizerPair
from transformer.transformer import Transformer


@dataclass(frozen=True)
class PendingTranslation:
    """Lines whose translation has started.

    Attributes:
        lines: Input lines.
        segmented: The lines with their segments.
        search: Search for the translations of all segments.
    """

    lines: Sequence[str]
    segmented: Sequence[SegmentedLine]
    search: PendingSearch


class Translator:
    """A trained encoder-decoder with its tokenizers, which translates lines of text.

    Args:
        model: Encoder-decoder; it is put into evaluation mode.
        tokenizers: Tokenizers of both sides.
        ensemble: Further models whose predictions are averaged with the first model's, each with its source tokenizer.
            All share the target tokenizer.
        shortlist: Target tokens that translations may use, given their sources; the default is all tokens.
        **options: Fields of `TranslatorConfig`, e.g. `search`, `terminology` (deprecated name: `lexicon`) and
            `max_source_tokens`.

    Raises:
        ConfigError: The terminology requires phrases, but there is a shortlist, groups or sampling; or coverage is
            combined with models that tokenize sources differently; or `search.min_tokens` exceeds the positions; or
            another option is invalid.

    Attributes:
        models: The model, followed by the other models of the ensemble.
        retokenizers: For each model, a function from the first model's source tokens to its own.
        config: The options, completed by what depends on the models.
        segmenter: Splits lines into segments.
        searcher: Searches for the translations of segments.
        assembler: Joins the translations of segments to translations of lines.
        corrector: Translates lines again whose translations cannot be right.
        aligner: Word aligner that uses the attention of the first model.
        special_tokens: Ids of the special tokens of the target.
        end_of_source: Token id that ends a source.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizers: TokenizerPair,
        *,
        ensemble: Sequence[tuple[Transformer, Tokenizer]] = (),
        shortlist: Shortlist | None = None,
        **options: Any,
    ) -> None:
        prepare_threads()
        self._options = TranslatorConfig(**renamed_lexicon(options))
        self.model, self.tokenizers, self._ensemble, self.shortlist = model.eval(), tokenizers, ensemble, shortlist
        self._by_search: dict[str, Translator] = {}
        self.models = [self.model, *(other.eval() for other, _ in ensemble)]
        sources = [tokenizers.source, *(source for _, source in ensemble)]
        self.retokenizers = [
            keep_tokens if source is sources[0] else make_retokenizer(sources[0], source, member.src_pos.seq_len)
            for source, member in zip(sources, self.models, strict=True)
        ]
        self.special_tokens = tokenizers.target.special_tokens
        self.end_of_source = tokenizers.source.special_tokens.eos or 0
        config = self._options.completed(self.models, tokenizers.target, on_gpu=self.device.type == "cuda")
        if config.search.coverage and any(retokenize is not keep_tokens for retokenize in self.retokenizers):
            raise ConfigError("coverage needs models with the same source tokenizer; leave out coverage or the others")
        if config.terminology.requires_phrases and shortlist:
            raise ConfigError("glossary and protected spans may need words that the shortlist lacks; leave one out")
        constraint_tokenizer = ConstraintTokenizer(tokenizers.target, config.terminology)
        banned = *config.search.banned, *constraint_tokenizer.banned()
        self.config = config = replace(config, search=replace(config.search, banned=banned))
        generator = make_generator(self.models, sources, self.retokenizers, shortlist, config.search)
        self.aligner = Aligner(self.model, tokenizers, self.device)
        seen = config.source_text.characters if config.source_text else None
        unseen = UnseenCharacters(tokenizers.source, seen)
        self.segmenter = Segmenter(config, tokenizers, sources, constraint_tokenizer, unseen)
        self.searcher = SegmentSearcher(generator, self.models, config, self.special_tokens, self.device)
        self.assembler = Assembler(config, tokenizers, self.aligner)
        self.corrector = Corrector(config, self.segmenter, self.searcher, self._assemble, can_require=shortlist is None)

    def with_options(self, **changes: Any) -> "Translator":
        """Returns a translator of the same models with other options, and with worker processes of its own.

        Args:
            **changes: Fields of `TranslatorConfig`.
        """
        options = vars(self._options) | renamed_lexicon(changes)
        return Translator(self.model, self.tokenizers, ensemble=self._ensemble, shortlist=self.shortlist, **options)

    def close(self) -> None:
        """Ends the worker processes and frees the captured CUDA graphs, which are otherwise kept for the next text."""
        self.searcher.close()
        for translator in self._by_search.values():
            translator.close()
        self._by_search.clear()

    def __repr__(self) -> str:
        """Returns the languages, the search and where it runs."""
        languages = " to ".join(filter(None, (self.config.source_language, self.config.target_language)))
        facts = (languages, f"{len(self.models)} models" if len(self.models) > 1 else "", self.description)
        return f"<Translator: {', '.join(filter(None, (*facts, f'beam {self.search.beam}')))}>"

    @overload
    def __call__(self, lines: str, *, n_best: None = None, **search: Any) -> str: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, lines: str, *, n_best: int, **search: Any) -> list[str]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, lines: Iterable[str], *, n_best: None = None, **search: Any) -> list[str]: ...
    @overload
    def __call__(self, lines: Iterable[str], *, n_best: int, **search: Any) -> list[list[str]]: ...
    def __call__(self, lines: Any, *, n_best: int | None = None, **search: Any) -> Any:
        """Same as `translate`."""
        return self.translate(lines, n_best=n_best, **search)

    @overload
    def translate(self, lines: str, *, n_best: None = None, **search: Any) -> str: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def translate(self, lines: str, *, n_best: int, **search: Any) -> list[str]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def translate(self, lines: Iterable[str], *, n_best: None = None, **search: Any) -> list[str]: ...
    @overload
    def translate(self, lines: Iterable[str], *, n_best: int, **search: Any) -> list[list[str]]: ...
    def translate(self, lines: Any, *, n_best: int | None = None, **search: Any) -> Any:
        """Returns one translation per line, in order; an empty line stays empty.

        Problems that `Translation.flags` would report are raised as warnings.

        Returns:
            A text for a text, and a list for a list; with `n_best`, each item is a list of the best translations.

        Args:
            lines: Line of text, or a list of lines.
            n_best: Number of translations per line. The beam is as wide, unless `beam` says otherwise.
            **search: Fields of `Search` for these lines alone, e.g. `beam=4`.

        Raises:
            ConfigError: A field of the search is unknown or invalid.
            TypeError: `lines` is neither a text nor a list of texts.
        """
        translator = self._with_search({**search, **({} if n_best is None else {"n_best": n_best})})
        translations = translator.translations([lines] if isinstance(lines, str) else texts_of(lines, "lines"))
        summary = FlagSummary()
        for number, translation in enumerate(translations, start=1):
            summary.add(number, translation.flags, translation.unseen)
        for note in summary.notes():
            warnings.warn(note, stacklevel=2)
        if n_best is None:
            results: list[Any] = [translation.text for translation in translations]
        else:
            results = [[alternative.text for alternative in translation.alternatives] for translation in translations]
        return results[0] if isinstance(lines, str) else results

    def _with_search(self, changes: dict[str, Any]) -> "Translator":
        """Returns a translator with other fields of its search, the same one for the same fields.

        Raises:
            ConfigError: A field is unknown or invalid.
        """
        if not changes:
            return self
        known = [field.name for field in fields(Search)]
        for name in changes:
            if name not in known:
                raise ConfigError(f"{name} is not an option of the search; choose one of {', '.join(known)}")
        key = repr(sorted(changes.items(), key=lambda change: change[0]))
        if key not in self._by_search:
            search = self._options.search
            beam = max(search.beam, changes.get("n_best", 1))
            self._by_search[key] = self.with_options(search=replace(search, **{"beam": beam, **changes}))
        return self._by_search[key]

    def translations(
        self,
        lines: Sequence[str],
        done: Callable[[int], None] | None = None,
        *,
        prefixes: Sequence[str] | None = None,
        first_line: int = 0,
    ) -> list[Translation]:
        """Returns one `Translation` per line, in order.

        Args:
            lines: Lines of text, without line ends.
            done: Callback for progress, called with the number of lines translated since the last call.
            prefixes: Beginning of the translation of each line; for a split line, of its first segment.
            first_line: Number of lines before these, so that each line of a long text has its own random stream.

        Raises:
            DataError: The numbers of prefixes and lines differ, or `lines` is a single text.
            TypeError: `lines` is not a list of texts.
            ConfigError: Prefixes are combined with a shortlist, or the task is too long.
        """
        return self.finish(self.begin(lines, prefixes, first_line), done)

    def begin(
        self, lines: Sequence[str], prefixes: Sequence[str] | None = None, first_line: int = 0
    ) -> PendingTranslation:
        """Starts the translation of lines, in worker processes if there is enough work; see `translations`."""
        if prefixes is not None and self.shortlist:
            raise ConfigError("prefixes may need words that the shortlist lacks; leave one of them out")
        lines = texts_of(lines, "lines")
        segmented = self.segmenter.segment(lines, prefixes, first_line)
        search = self.searcher.begin([segment for line in segmented for segment in line.segments])
        return PendingTranslation(lines, segmented, search)

    def finish(self, pending: PendingTranslation, done: Callable[[int], None] | None = None) -> list[Translation]:
        """Returns the translations of lines whose translation was started with `begin`; this works once.

        Raises:
            WorkerError: A process was killed, or the processes were ended by `close`.
            ConfigError: The translations have been returned before.
        """
        searched = iter(self.searcher.finish(pending.search, count_finished_lines(pending.segmented, done)))
        by_line = [[*islice(searched, len(line.segments))] for line in pending.segmented]
        n_complete = sum(
            len(line.segments) == len(taken) for line, taken in zip(pending.segmented, by_line, strict=True)
        )
        if n_complete != len(pending.lines) or next(searched, None) is not None:  # n lines in, n lines out
            raise RuntimeError(f"{len(pending.lines)} lines became {n_complete} whole translations")
        return self.corrector.correct(pending.segmented, self._assemble(pending.segmented, by_line))

    def _assemble(
        self, segmented: Sequence[SegmentedLine], by_line: Sequence[list[SearchedSegment]]
    ) -> list[Translation]:
        """Assembles the translations of lines; those that lack sentences are translated sentence by sentence first."""
        if self.config.split != "auto" or self.config.task:
            return [self.assembler.assemble(*pair) for pair in zip(segmented, by_line, strict=True)]
        lines, results = list(segmented), list(by_line)
        lacking = [
            i for i, pair in enumerate(zip(lines, results, strict=True)) if self.assembler.lacks_sentences(*pair)
        ]
        for index in lacking:
            lines[index] = self.segmenter.by_sentence(lines[index])
        segments = [segment for index in lacking for segment in lines[index].segments]
        searched = iter(self.searcher.search_again(segments) if segments else ())
        for index in lacking:
            results[index] = [*islice(searched, len(lines[index].segments))]
        translations = [self.assembler.assemble(*pair) for pair in zip(lines, results, strict=True)]
        for index in lacking:
            flags = (*translations[index].flags, "the translation lacked sentences; translated sentence by sentence")
            translations[index] = replace(translations[index], flags=flags)
        return translations

    @property
    def device(self) -> torch.device:
        """Device of the model. Packed models have no parameters and are on the CPU."""
        return next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))

    @property
    def search(self) -> Search:
        """Search options, with the banned phrases of the terminology."""
        return self.config.search

    @property
    def terminology(self) -> Terminology:
        """Phrases that translations must contain and must not contain."""
        return self.config.terminology

    @property
    def max_source_tokens(self) -> int:
        """Maximum number of source tokens, EOS included; longer lines are split."""
        return self.config.max_source_tokens

    @property
    def max_target_tokens(self) -> int:
        """Maximum number of target tokens, EOS included."""
        return self.config.max_target_tokens

    @property
    def batch_tokens(self) -> int:
        """Maximum of longest source x hypotheses in a batch."""
        return self.config.batch_tokens

    @property
    def workers(self) -> int:
        """Maximum number of processes that search in parallel."""
        return self.config.workers

    @property
    def deterministic(self) -> bool:
        """Whether each line is translated alone and on one thread."""
        return self.config.deterministic

    @property
    def description(self) -> str:
        """Device, precision and number of processes, for users."""
        return self.config.description

    @property
    def task(self) -> str:
        """Prefix of each line, and of each segment of a split line."""
        return self.config.task

    @task.setter
    def task(self, task: str) -> None:
        warnings.warn(
            "setting Translator.task is deprecated; use load(..., task=...) or Translator.with_options(task=...)",
            DeprecationWarning,
            stacklevel=2,
        )
        self._options, self.config = replace(self._options, task=task), replace(self.config, task=task)
        self.segmenter = replace(self.segmenter, config=self.config)
        self.assembler = replace(self.assembler, config=self.config)
        self.corrector = replace(self.corrector, config=self.config, segmenter=self.segmenter)


def count_finished_lines(
    lines: Sequence[SegmentedLine], done: Callable[[int], None] | None
) -> Callable[[int], None] | None:
    """Converts a callback for finished lines to one for finished segments.

    Args:
        lines: Lines; those without segments are reported at once.
        done: Callback with the number of lines that were finished since the last call.

    Returns:
        Callback with the index of a finished segment; None if `done` is None.
    """
    if done is None:
        return None
    line_of = [index for index, line in enumerate(lines) for _ in line.segments]
    remaining = Counter(line_of)
    done(len(lines) - len(remaining))

    def on_segment(segment: int) -> None:
        line = line_of[segment]
        remaining[line] -= 1
        if not remaining[line]:
            done(1)

    return on_segment
