"""Translator: holds a model with its tokenizers and settings, and runs the five stages of a translation."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack, overload

import torch

from transformer.decoding import Search, SharedModels, Shortlist, keep_tokens, make_retokenizer
from transformer.documents.formats import format_of
from transformer.errors import ConfigError
from transformer.pipelines.device import device_of
from transformer.pipelines.texts import texts_of
from transformer.pipelines.translation import documents
from transformer.pipelines.translation.checks import CheckedLine
from transformer.pipelines.translation.confidence import ConfidenceModel, with_confidence
from transformer.pipelines.translation.config import (
    LANGUAGES,
    CallOptions,
    Languages,
    TranslatorConfig,
    changed_search,
    renamed_lexicon,
)
from transformer.pipelines.translation.flag_summary import FlagSummary
from transformer.pipelines.translation.reranking import Reranker, ReverseScorer
from transformer.pipelines.translation.results import Translation
from transformer.pipelines.translation.retry import Retrier
from transformer.pipelines.translation.search import (
    PendingSearch,
    SegmentSearcher,
    count_finished_lines,
    group_by_line,
    make_generators,
)
from transformer.pipelines.translation.segment import SegmentedLine, Segmenter
from transformer.pipelines.translation.stages import StageFactory, Stages
from transformer.pipelines.translation.terminology import Terminology
from transformer.runtime.threads import prepare_threads
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.pair import TokenizerPair
from transformer.transformer import Transformer


@dataclass(frozen=True)
class PendingTranslation:
    """Lines whose translation has started.

    Attributes:
        lines: Input lines.
        stages: The stages with the options of the call.
        segmented: The lines with their segments.
        search: Search for the translations of all segments.
    """

    lines: Sequence[str]
    stages: Stages
    segmented: Sequence[SegmentedLine]
    search: PendingSearch

    @property
    def options(self) -> TranslatorConfig:
        """Options of the call."""
        return self.stages.options


class Translator:
    """A trained encoder-decoder with its tokenizers, which translates lines of text.

    Search, terminology and prefixes come with each call; those given here are the defaults. All calls share one pool of
    worker processes.

    Args:
        model: Encoder-decoder; it is put into evaluation mode.
        tokenizers: Tokenizers of both sides.
        ensemble: Further models whose predictions are averaged with the first model's, each with its source tokenizer.
            All share the target tokenizer.
        shortlist: Target tokens that translations may use, given their sources; the default is all tokens.
        reverse: Scores by a model of the other direction, by which the hypotheses of a beam are ranked as well.
        **options: Fields of `TranslatorConfig`, e.g. `search`, `terminology` (deprecated name: `lexicon`) and
            `max_source_tokens`.

    Raises:
        ConfigError: The terminology has terms, but there is a task; or coverage is combined with models that tokenize
            sources differently; or `search.min_tokens` exceeds the positions; or another option is invalid.

    Attributes:
        models: The model, followed by the other models of the ensemble.
        retokenizers: For each model, a function from the first model's source tokens to its own.
        searcher: Searches for the translations of segments; it alone has state, a pool of processes or CUDA graphs.
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
        reverse: ReverseScorer | None = None,
        **options: Any,
    ) -> None:
        prepare_threads()
        self._settings = TranslatorConfig(**renamed_lexicon(options))
        self.model, self.tokenizers, self.shortlist = model.eval(), tokenizers, shortlist
        self.models = [self.model, *(other.eval() for other, _ in ensemble)]
        self.sources = [tokenizers.source, *(source for _, source in ensemble)]
        self.special_tokens = tokenizers.target.special_tokens
        self.end_of_source = tokenizers.source.special_tokens.end
        self._factory = StageFactory(
            self._settings, self.models, self.sources, tokenizers, self.device, has_reverse=reverse is not None
        )
        default = self._factory.options(self._settings)
        self._stages = self._factory.stages(default)
        self.retokenizers = [
            keep_tokens
            if source is tokenizers.source
            else make_retokenizer(
                tokenizers.source, source.to_language(default.target_language), member.src_pos.seq_len
            )
            for source, member in zip(self.sources, self.models, strict=True)
        ]
        self.tokenizers, self.aligner = self._stages.assembler.tokenizers, self._stages.assembler.aligner
        generators = make_generators(self.models, self.sources, self.retokenizers, shortlist)
        shared = SharedModels(generators, self.models, self.special_tokens)
        reranker = reverse and Reranker(reverse, tokenizers)
        self.searcher = SegmentSearcher(shared, self.device, tokenizers.target.decode, reranker)

    def close(self) -> None:
        """Ends the worker processes and frees the captured CUDA graphs, which are otherwise kept for the next text."""
        self.searcher.close()

    def __repr__(self) -> str:
        """Returns the languages, the search and where it runs."""
        languages = " to ".join(filter(None, (self.config.source_language, self.config.target_language)))
        facts = (languages, f"{len(self.models)} models" if len(self.models) > 1 else "", self.description)
        return f"<Translator: {', '.join(filter(None, (*facts, f'beam {self.search.beam}')))}>"

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self,
        lines: str,
        *,
        n_best: None = None,
        terminology: Terminology | None = None,
        **search: Unpack[CallOptions],
    ) -> str: ...
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, lines: str, *, n_best: int, terminology: Terminology | None = None, **search: Unpack[CallOptions]
    ) -> list[str]: ...
    @overload
    def __call__(
        self,
        lines: Iterable[str],
        *,
        n_best: None = None,
        terminology: Terminology | None = None,
        **search: Unpack[CallOptions],
    ) -> list[str]: ...
    @overload
    def __call__(
        self,
        lines: Iterable[str],
        *,
        n_best: int,
        terminology: Terminology | None = None,
        **search: Unpack[CallOptions],
    ) -> list[list[str]]: ...
    def __call__(
        self,
        lines: Any,
        *,
        n_best: int | None = None,
        terminology: Terminology | None = None,
        **search: Unpack[CallOptions],
    ) -> str | list[str] | list[list[str]]:
        """Returns one translation per line, in order; an empty line stays empty.

        Problems that `Translation.flags` would report are raised as warnings.

        Returns:
            A text for a text, and a list for a list; with `n_best`, each item is a list of the best translations.

        Args:
            lines: Line of text, or a list of lines.
            n_best: Number of translations per line. The beam is as wide, unless `beam` says otherwise.
            terminology: Terms and protected spans of these lines, instead of the translator's.
            **search: Fields of `Search` for these lines alone, e.g. `beam=4`; and `source_language` and
                `target_language`, which a model of several languages needs.

        Raises:
            ConfigError: A field of the search is unknown or invalid, or the target language is missing or unknown.
            TypeError: `lines` is neither a text nor a list of texts.
        """
        changes = dict[str, Any](search)
        languages = Languages(**{name: changes.pop(name) for name in LANGUAGES if name in changes})
        changed = changed_search(self._settings.search, changes, n_best)
        translations = self.translations(
            [lines] if isinstance(lines, str) else texts_of(lines, "lines"),
            search=changed, terminology=terminology, **languages,
        )  # fmt: skip
        summary = FlagSummary()
        for number, translation in enumerate(translations, start=1):
            summary.add(number, translation.flags, translation.unseen)
        for note in summary.notes():
            warnings.warn(note, stacklevel=2)
        if n_best is None:
            texts = [translation.text for translation in translations]
            return texts[0] if isinstance(lines, str) else texts
        lists = [[alternative.text for alternative in translation.alternatives] for translation in translations]
        return lists[0] if isinstance(lines, str) else lists

    translate = __call__

    def translations(
        self,
        lines: Sequence[str],
        done: Callable[[int], None] | None = None,
        *,
        search: Search | None = None,
        terminology: Terminology | None = None,
        prefixes: Sequence[str] | None = None,
        first_line: int = 0,
        on_ready: Callable[[Mapping[int, Translation]], object] | None = None,
        **languages: Unpack[Languages],
    ) -> list[Translation]:
        """Returns one `Translation` per line, in order.

        Args:
            lines: Lines of text, without line ends.
            done: Callback for progress, called with the number of lines translated since the last call.
            search: Options of the search, instead of the translator's.
            terminology: Terms and protected spans, instead of the translator's.
            prefixes: Beginning of the translation of each line; for a split line, of its first segment.
            first_line: Number of lines before these, so that each line of a long text has its own random stream.
            on_ready: Function to call before some of the lines are searched for again because of a problem, with the
                translations of the others, by their places in `lines`.
            **languages: Source and target language of these lines, instead of the translator's.

        Raises:
            DataError: The numbers of prefixes and lines differ, or `lines` is a single text.
            TypeError: `lines` is not a list of texts.
            ConfigError: Options contradict each other or the model, the task is too long, or the target language is
                missing or none of the model's.
        """
        pending = self.begin(lines, prefixes, first_line, search=search, terminology=terminology, **languages)
        return self.finish(pending, done, on_ready)

    def translate_file(
        self,
        path: Path | str,
        output: Path | str,
        form: str = "auto",
        *,
        columns: Sequence[int | str] = (),
        **options: Unpack[documents.DocumentArguments],
    ) -> documents.DocumentReport:
        """Translates the text of a document in place, and writes the document to another file, whole or not at all.

        Args:
            path: Document.
            output: File to write; it may be the document if the format holds the source beside the translation.
            form: Name of the format, e.g. "po"; "auto" tells it by name and content.
            columns: Columns of a table to translate: numbers, from 1, or names; by default those with sentences.
            **options: Fields of `DocumentOptions`, e.g. `mark="none"`.

        Raises:
            ConfigError: The name of the format is unknown, or columns are given for another format than a table.
            DataError: The document cannot be read, or is not of a known format.
            OutputError: The output cannot be written.
        """
        chosen = format_of(Path(path), form).with_columns(columns), documents.DocumentOptions(**options)
        return documents.translate_file(self, Path(path), Path(output), *chosen)

    def begin(
        self,
        lines: Sequence[str],
        prefixes: Sequence[str] | None = None,
        first_line: int = 0,
        *,
        search: Search | None = None,
        terminology: Terminology | None = None,
        **languages: Unpack[Languages],
    ) -> PendingTranslation:
        """Starts the translation of lines, in worker processes if there is enough work; see `translations`."""
        if prefixes is not None and self.shortlist:
            raise ConfigError("prefixes may need words that the shortlist lacks; leave one of them out")
        stages, default = self._stages, self._stages.options
        is_same_language = all(tag in ("", None, getattr(default, name)) for name, tag in languages.items())
        if (search is not None and search != default.search) or terminology is not None or not is_same_language:
            stages = self._factory.stages(self._factory.options(self._settings, search, terminology, languages))
        lines = texts_of(lines, "lines")
        segmented = stages.segmenter.segment(lines, prefixes, first_line)
        segments = [segment for line in segmented for segment in line.segments]
        return PendingTranslation(lines, stages, segmented, self.searcher.begin(segments, stages.options))

    def finish(
        self,
        pending: PendingTranslation,
        done: Callable[[int], None] | None = None,
        on_ready: Callable[[Mapping[int, Translation]], object] | None = None,
    ) -> list[Translation]:
        """Returns the translations of lines whose translation was started with `begin`; this works once.

        `done` and `on_ready` are those of `translations`.

        Raises:
            WorkerError: A process was killed, or the processes were ended by `close`.
            ConfigError: The translations have been returned before.
        """
        finished: dict[int, Translation] = {}

        def finish(lines: Mapping[int, CheckedLine]) -> None:
            model = self.confidence_model(pending.options.search)
            finished.update({i: with_confidence(line, model) for i, line in lines.items() if i not in finished})

        def report(lines: Mapping[int, CheckedLine]) -> None:
            finish(lines)
            if on_ready is not None:
                on_ready({i: finished[i] for i in lines})

        checked = self.finish_checked(pending, done, report)
        finish(dict(enumerate(checked)))
        return [finished[i] for i in range(len(checked))]

    def finish_checked(
        self,
        pending: PendingTranslation,
        done: Callable[[int], None] | None = None,
        on_ready: Callable[[Mapping[int, CheckedLine]], object] | None = None,
    ) -> list[CheckedLine]:
        """Same as `finish`, but returns the lines with all that the stages know about them, without a confidence."""
        stages, lines = pending.stages, pending.segmented
        counts = [len(line.segments) for line in lines]
        segments = self.searcher.finish(pending.search, count_finished_lines(counts, done))
        searched = group_by_line(counts, segments, len(pending.lines))
        checked = stages.checker.check(lines, searched, stages.assembler.assemble(lines, searched))
        retrier = Retrier(stages.options, stages.segmenter, self.searcher, stages.assembler, stages.checker)
        return retrier.retry(checked, on_ready)

    def confidence_model(self, search: Search) -> ConfidenceModel | None:
        """Returns the model of the confidence in translations of a search; None for an ensemble, or without one."""
        return self.config.calibration.model_for(search) if len(self.models) == 1 else None

    @property
    def segmenter(self) -> Segmenter:
        """The first stage with the default options."""
        return self._stages.segmenter

    @property
    def config(self) -> TranslatorConfig:
        """The settings, with the default search and terminology, completed by what depends on the models."""
        return self._stages.options

    def segmenter_to(self, target_language: str) -> Segmenter:
        """Returns the first stage of a call with a target language, which a model of several languages needs."""
        options = self._factory.options(self._settings, languages={"target_language": target_language})
        return self._factory.stages(options).segmenter

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return device_of(self.model)

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
            "setting Translator.task is deprecated; use transformer.load(..., task=...)",
            DeprecationWarning,
            stacklevel=2,
        )
        self._settings = replace(self._settings, task=task)
        self._stages = self._factory.stages(self._factory.options(self._settings))
