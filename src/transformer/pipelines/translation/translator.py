"""Translator: splits, encodes, searches, decodes and rejoins lines, in the order of the input."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import current_process

import torch

from transformer.decoding import (
    GREEDY,
    RETRY_NGRAM,
    Ensemble,
    GraphedSearcher,
    Hypothesis,
    Request,
    RetokenizingModel,
    Search,
    Shortlist,
    ShortlistModel,
    Tokens,
    Workers,
    keep_tokens,
    make_retokenizer,
    normalized_score,
    search_each,
    single_thread,
)
from transformer.errors import ConfigError, DataError
from transformer.interfaces import GenerativeModel
from transformer.pipelines.translation.alignment import Aligner
from transformer.pipelines.translation.constraints import ConstraintTokenizer
from transformer.pipelines.translation.coverage import coverage_penalties, decoder_inputs
from transformer.pipelines.translation.inline_tags import TagFreeLine
from transformer.pipelines.translation.results import (
    EMPTY_ALTERNATIVE,
    Alternative,
    PendingTranslation,
    Segment,
    Translation,
    count_finished_lines,
    is_degenerate,
    longest_first,
    quality_warnings,
)
from transformer.pipelines.translation.tag_transfer import transfer_tags
from transformer.pipelines.translation.terminology import Terminology, renamed_lexicon
from transformer.text.sentence_splitting import SplitLine, split_line
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.pair import TokenizerPair
from transformer.transformer import Transformer

SEEDS_PER_LINE = 1024
"""Random streams reserved per input line; each segment uses one."""
MIN_TOKENS_PER_WORKER, MIN_TOKENS_PER_RUNNING_WORKER = 2048, 512
"""Minimum number of source tokens x hypotheses that justifies starting a process, or using one that runs."""
BATCH_TOKENS = 4096
"""Fastest power of two for models from `tiny` to `base`, see `benchmarks/decoding/throughput.py`."""
GPU_BATCH_TOKENS = 8192
"""Batch size in tokens per hypothesis on a GPU, see `benchmarks/decoding/throughput_gpu.py`."""
EXTRA_TOKENS = 50
"""Tokens that a translation may have beyond its source (Vaswani et al. 2017, Sec. 6.1), or beyond `min_tokens`."""


class Translator:
    """A trained encoder-decoder with its tokenizers, which translates lines of text.

    Args:
        model: Encoder-decoder; it is put into evaluation mode.
        tokenizers: Tokenizers of both sides.
        max_source_tokens: Maximum number of source tokens, EOS included; longer lines are split. The longest source
            seen in training is a sensible choice, since positions beyond it were never learned.
        search: Search options.
        terminology: Phrases that translations must contain and must not contain.
        ensemble: Further models whose predictions are averaged with the first model's, each with its source tokenizer.
            All share the target tokenizer.
        shortlist: Target tokens that translations may use, given their sources; the default is all tokens.
        lexicon: Deprecated name of `terminology`.

    Raises:
        ConfigError: The terminology requires phrases, but there is a shortlist, groups or sampling; or coverage is
            combined with models that tokenize sources differently; or `search.min_tokens` exceeds the positions.

    Attributes:
        models: The model, followed by the other models of the ensemble.
        retokenizers: For each model, a function from the first model's source tokens to its own.
        aligner: Word aligner that uses the attention of the first model.
        batch_tokens: Maximum of longest source x hypotheses in a batch. On a CPU it is `BATCH_TOKENS` for greedy search
            and twice as much for a beam; on a GPU it is `GPU_BATCH_TOKENS` per hypothesis.
        workers: Maximum number of processes that search in parallel; 1 leaves all torch threads to a single search.
        description: Device, precision and number of processes, for users.
        deterministic: Whether each line is translated alone and on one thread. Translations and scores are then
            bitwise independent of the other lines; otherwise scores may differ in the last digits.
        task: Prefix of each line, and of each segment of a split line, for text-to-text models, e.g. "summarize: ".
        special_tokens: Ids of the special tokens of the target.
        end_of_source: Token id that ends a source.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizers: TokenizerPair,
        *,
        max_source_tokens: int,
        search: Search = GREEDY,
        terminology: Terminology | None = None,
        ensemble: Sequence[tuple[Transformer, Tokenizer]] = (),
        shortlist: Shortlist | None = None,
        lexicon: Terminology | None = None,
    ) -> None:
        terminology = renamed_lexicon(terminology, lexicon) or Terminology()
        self.model = model.eval()
        self.tokenizers = tokenizers
        self.models = models = [self.model, *(other.eval() for other, _ in ensemble)]
        self._sources = sources = [tokenizers.source, *(source for _, source in ensemble)]
        self.retokenizers = [
            keep_tokens if source is sources[0] else make_retokenizer(sources[0], source, member.src_pos.seq_len)
            for source, member in zip(sources, models, strict=True)
        ]
        pads = [source.special_tokens.pad or 0 for source in sources]
        generators = [
            member if retokenize is keep_tokens else RetokenizingModel(member, retokenize, pad)
            for member, retokenize, pad in zip(models, self.retokenizers, pads, strict=True)
        ]
        if shortlist is not None:
            generators = [ShortlistModel(generator, shortlist, fused=not ensemble) for generator in generators]
        self.generator: GenerativeModel = Ensemble(generators, search.average) if ensemble else generators[0]
        self.shortlist = shortlist
        self.max_source_tokens = min(max_source_tokens, *(member.src_pos.seq_len for member in models))
        self.max_target_tokens = min(member.tgt_pos.seq_len for member in models)
        self.special_tokens = tokenizers.target.special_tokens
        self.end_of_source = 0 if tokenizers.source.special_tokens.eos is None else tokenizers.source.special_tokens.eos
        on_gpu = self.device.type == "cuda"
        self.batch_tokens = GPU_BATCH_TOKENS * search.beam if on_gpu else BATCH_TOKENS * min(search.beam, 2)
        self.deterministic, self.workers = False, 1
        self.description = self.task = ""
        self._pool: Workers | None = None
        self._searcher: GraphedSearcher | None = None
        self.terminology = replace(terminology, normalize=tokenizers.target.normalize)
        if search.coverage and any(retokenize is not keep_tokens for retokenize in self.retokenizers):
            raise ConfigError("coverage needs models with the same source tokenizer; leave out coverage or the others")
        if search.min_tokens >= self.max_target_tokens:
            raise ConfigError(f"min_tokens={search.min_tokens} exceeds {self.max_target_tokens - 1}; choose fewer")
        if self.terminology.requires_phrases and (search.groups > 1 or search.sampling):
            raise ConfigError("glossary and protected spans need a beam; leave out groups and sampling")
        if self.terminology.requires_phrases and shortlist:
            raise ConfigError("glossary and protected spans may need words that the shortlist lacks; leave one out")
        self._constraint_tokenizer = ConstraintTokenizer(tokenizers.target, self.terminology)
        self.search = replace(search, banned=(*search.banned, *self._constraint_tokenizer.banned()))
        self.aligner = Aligner(self.model, tokenizers, self.device)

    @property
    def device(self) -> torch.device:
        """Device of the model. Packed models have no parameters and are on the CPU."""
        return next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))

    def close(self) -> None:
        """Ends the worker processes and frees the captured CUDA graphs, which are otherwise kept for the next text."""
        if self._pool is not None:
            self._pool.close()
        self._pool = self._searcher = None

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Returns one translation per line, in order; an empty line stays empty.

        Problems that `Translation.flags` would report are raised as warnings.

        Raises:
            DataError: `lines` is a single text instead of a list.
        """
        if isinstance(lines, str):
            raise DataError("lines is a single text and would be translated letter by letter; give a list, e.g. [text]")
        translations = self.translations(lines)
        for number, translation in enumerate(translations, start=1):
            for flag in translation.flags:
                warnings.warn(f"line {number}: {flag}", stacklevel=2)
        return [translation.text for translation in translations]

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
            DataError: The numbers of prefixes and lines differ.
            ConfigError: Prefixes are combined with a shortlist, or a task with protected tags, or the task is too long.
        """
        return self.finish(self.begin(lines, prefixes, first_line), done)

    def begin(
        self, lines: Sequence[str], prefixes: Sequence[str] | None = None, first_line: int = 0
    ) -> PendingTranslation:
        """Starts the translation of lines, in worker processes if there is enough work; see `translations`."""
        if self.task and "tags" in self.terminology.protected:
            raise ConfigError("tags are restored by their positions in the line, which a task shifts; leave one out")
        if prefixes is not None and self.shortlist:
            raise ConfigError("prefixes may need words that the shortlist lacks; leave one of them out")
        if prefixes is not None and len(prefixes) != len(lines):
            raise DataError(f"{len(lines):,} lines, but {len(prefixes):,} prefixes; give one prefix per line")
        tag_free = [self.terminology.tag_free(line) for line in lines]
        with_task = [self.task * bool(line.text.strip()) + line.text for line in tag_free]
        splits, segments = self._split_lines(with_task, prefixes, first_line)
        return PendingTranslation(lines, tag_free, splits, segments, self._search(segments, self.search))

    def finish(self, pending: PendingTranslation, done: Callable[[int], None] | None = None) -> list[Translation]:
        """Returns the translations of lines whose translation was started with `begin`; this works once.

        Raises:
            WorkerError: A process was killed; or the processes have ended meanwhile, because of `close` or of changed
                options of the search or the workers.
            ConfigError: The translations have been returned before.
        """
        lines, segments = pending.lines, pending.segments
        with single_thread() if self.deterministic else nullcontext():
            on_segment = count_finished_lines(len(lines), [segment.line for segment in segments], done)
            results = self._collect(segments, self.search, pending.results, on_segment)
            if self.search.retry_degenerate:
                self._retry_degenerate(segments, results)
        by_line: list[list[tuple[Segment, list[Hypothesis]]]] = [[] for _ in lines]
        for segment, hypotheses in zip(segments, results, strict=True):
            by_line[segment.line].append((segment, hypotheses))
        joined = map(self._join, pending.splits, by_line)
        return list(map(self._restore_and_check, lines, pending.tag_free, joined))

    def _restore_and_check(self, line: str, tag_free: TagFreeLine, translation: Translation) -> Translation:
        """Restores the tags of a line in its translation, and adds flags for violated constraints."""
        if not self.terminology.is_active:
            return translation
        if tag_free.elements:
            translation = transfer_tags(self.aligner, line, tag_free, translation)
        return replace(translation, flags=(*translation.flags, *self.terminology.violations(line, translation.text)))

    def _retry_degenerate(self, segments: Sequence[Segment], results: list[list[Hypothesis]]) -> None:
        """Repeats the search of degenerate translations without repeated n-grams, and keeps those that improve."""
        indices = [i for i, segment in enumerate(segments) if is_degenerate(segment, results[i][0], self.search)]
        no_repeat = replace(self.search, no_repeat_ngram=min(self.search.no_repeat_ngram or RETRY_NGRAM, RETRY_NGRAM))
        degenerate = [segments[index] for index in indices]
        is_shared = self._pool is not None and self._pool.is_busy  # another text uses the other cores
        with single_thread() if is_shared else nullcontext():
            retried = self._collect(degenerate, no_repeat, self._search(degenerate, no_repeat))
        for index, hypotheses in zip(indices, retried, strict=True):
            if not is_degenerate(segments[index], hypotheses[0], self.search):
                results[index], segments[index].retried = hypotheses, True

    def _search(self, segments: Sequence[Segment], search: Search) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Starts the search, in worker processes if there is enough work; yields `PendingTranslation.results`."""
        is_retry, special = search is not self.search, self.special_tokens
        order = longest_first(segments)
        search = replace(search, n_best=search.beam) if search.coverage else search
        requests = (self._request(segments[index]) for index in order)
        tokens = search.beam * sum(len(segment.tokens) for segment in segments)
        batch_tokens = 1 if self.deterministic else self.batch_tokens
        pool = self._pool if self._pool and self._pool.matches(self.generator, search, self.workers) else None
        min_tokens = self.workers * (MIN_TOKENS_PER_RUNNING_WORKER if pool else MIN_TOKENS_PER_WORKER)
        if self.workers > 1 and not is_retry and not current_process().daemon and tokens >= min_tokens:
            if pool is None:
                self.close()
                self._pool = pool = Workers(self.generator, search, self.workers, special)
            return pool.search_each(requests, min(batch_tokens, -(-tokens // self.workers)))
        if self.device.type == "cuda" and not is_retry:
            if self._searcher is None or self._searcher.search != search:
                self._searcher = GraphedSearcher(self.generator, search, self.device, self.max_source_tokens, special)
            return self._searcher.search_each(requests, batch_tokens)
        return search_each(
            self.generator, requests, search, batch_tokens=batch_tokens, device=self.device, special_tokens=special
        )

    def _collect(
        self,
        segments: Sequence[Segment],
        search: Search,
        results: Iterable[tuple[int, list[Hypothesis]]],
        on_segment: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses of every segment, in order."""
        completed: dict[int, list[Hypothesis]] = {}
        order = longest_first(segments)
        for rank, hypotheses in results:
            completed[order[rank]] = hypotheses
            if on_segment is not None:
                on_segment(segments[order[rank]].line)
        if len(completed) < len(segments):
            raise ConfigError("the translations of these lines were returned before; begin them again")
        in_order = [completed[index] for index in range(len(segments))]
        return self._rerank_by_coverage(segments, in_order) if search.coverage else in_order

    def _rerank_by_coverage(
        self, segments: Sequence[Segment], results: Sequence[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Ranks the hypotheses of every segment by their scores with the coverage penalty, finished ones first."""
        batch_tokens, penalty = 1 if self.deterministic else self.batch_tokens, self.search.length_penalty
        pairs = [
            (segment.tokens, decoder_inputs(hypothesis.tokens, hypothesis.length, self.special_tokens.bos))
            for segment, hypotheses in zip(segments, results, strict=True)
            for hypothesis in hypotheses
        ]
        penalties = iter(coverage_penalties(self.models, pairs, batch_tokens, self.device))
        ranked: list[list[Hypothesis]] = []
        for hypotheses in results:
            covered = [replace(hyp, coverage=self.search.coverage * next(penalties)) for hyp in hypotheses]
            covered.sort(key=lambda hyp: (hyp.finished, normalized_score(hyp, penalty)), reverse=True)
            ranked.append(covered[: self.search.n_best])
        return ranked

    def _split_lines(
        self, lines: Sequence[str], prefixes: Sequence[str] | None, first_line: int
    ) -> tuple[list[SplitLine], list[Segment]]:
        """Splits lines that are too long, and returns the splits and the segments of all lines, in order."""
        encode, max_tokens = self.tokenizers.source.encode_batch, self.max_source_tokens - 1
        starts = [()] * len(lines) if prefixes is None else map(tuple, self.tokenizers.target.encode_batch(prefixes))
        splits: list[SplitLine] = []
        segments: list[Segment] = []

        def add(line: int, parts: list[list[int]], prefix: Tokens) -> None:
            for index, (part, text) in enumerate(zip(parts, splits[-1].pieces, strict=True)):
                number = (first_line + line) * SEEDS_PER_LINE + index
                required = self._constraint_tokenizer.constraints(text.removeprefix(self.task.rstrip()))
                start = () if index else prefix
                segments.append(Segment(line, [*part, self.end_of_source], start, number, required))

        encoded = encode(lines)
        lengths = self.source_lengths(lines, encoded)
        for number, (line, tokens, prefix) in enumerate(zip(lines, encoded, starts, strict=True)):
            if not line.strip():
                splits.append(SplitLine([]))
            elif lengths[number] <= max_tokens:
                splits.append(SplitLine([line]))
                add(number, [tokens], prefix)
            else:
                splits.append(self._split_line(line, max_tokens))
                add(number, [part[:max_tokens] for part in encode(splits[-1].pieces)], prefix)
        return splits, segments

    def source_lengths(self, texts: Sequence[str], encoded: Sequence[Sequence[int]] | None = None) -> list[int]:
        """Returns the number of tokens of each source without EOS, the largest over the models of the ensemble.

        Args:
            texts: Source texts.
            encoded: Their tokens for the first model, if known.
        """
        others = {id(source): source for source in self._sources if source is not self.tokenizers.source}.values()
        first = self.tokenizers.source.encode_batch(texts) if encoded is None else encoded
        by_tokenizer = [first, *(source.encode_batch(texts) for source in others)]
        return [max(map(len, tokens)) for tokens in zip(*by_tokenizer, strict=True)]

    def _split_line(self, line: str, max_tokens: int) -> SplitLine:
        """Splits a long line; the task, or the prefix that the source tokenizer asks for, is repeated in each part."""
        lead = self.task.rstrip() or self.tokenizers.source.language_prefix(line)
        if not lead:
            return split_line(line, max_tokens, self.source_lengths)
        left = max_tokens - self.source_lengths([lead])[0]
        if left < max_tokens // 2:
            raise ConfigError(f"{lead!r} leaves {left} of {max_tokens} tokens for the text; give a shorter one")
        text = line[len(lead) :]
        return split_line(text, left, self.source_lengths).with_prefix(lead, is_apart=text[:1].isspace())

    def _limit(self, segment: Segment) -> int:
        """Returns the maximum number of tokens of a segment's translation, EOS included."""
        reserved = max(len(segment.tokens) + len(segment.prefix), self.search.min_tokens + 1)
        limit = reserved + EXTRA_TOKENS if self.search.max_tokens is None else self.search.max_tokens + 1
        return min(limit, self.max_target_tokens)

    def _request(self, segment: Segment) -> Request:
        limit, prefix, special = self._limit(segment), segment.prefix, self.special_tokens
        known = prefix[: prefix.index(special.unk)] if special.unk in prefix else prefix
        return Request(segment.tokens, limit, known[: limit - 1], segment.number, segment.required, special.bos, True)

    def _join(self, split: SplitLine, results: Sequence[tuple[Segment, list[Hypothesis]]]) -> Translation:
        """Joins the hypotheses of all segments of a line rank by rank, the best ones with each other."""
        flags: list[str] = []
        target, penalty = self.tokenizers.target, self.search.length_penalty
        ranks = zip(*(hypotheses for _, hypotheses in results), strict=False)
        alternatives = tuple(Alternative.join(rank, target, penalty) for rank in ranks) or (EMPTY_ALTERNATIVE,)
        if not split.is_clean:
            flags.append(f"longer than {self.max_source_tokens} tokens without a sentence end; cut within a sentence")
        if len(split.pieces) > 1 and not self.task and self.tokenizers.source.kind == "published":
            flags.append(
                f"longer than {self.max_source_tokens} tokens; a prefix for the model only precedes its first part"
            )
        flags += quality_warnings(results, self.search)
        if any(len(segment.prefix) >= self._limit(segment) for segment, _ in results):
            flags.append("the requested prefix is longer than the model's limit; it was cut")
        if any(self.special_tokens.unk in segment.prefix for segment, _ in results):
            flags.append("the requested prefix has characters outside the vocabulary; it was cut before them")
        sources = tuple(tuple(segment.tokens) for segment, _ in results)
        words = None if split.words is None else (split.words, [*range(len(alternatives[0].text.split()))])
        return Translation(alternatives, tuple(flags), sources, words)
