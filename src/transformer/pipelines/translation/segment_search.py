"""Search for the translations of segments: in this process, in worker processes, or with CUDA graphs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import current_process
from typing import Final

import torch

from transformer.decoding import (
    RETRY_NGRAM,
    Ensemble,
    GraphedSearcher,
    Hypothesis,
    Request,
    Retokenize,
    RetokenizingModel,
    Search,
    Shortlist,
    ShortlistModel,
    Workers,
    keep_tokens,
    normalized_score,
    repeats_itself,
    search_each,
    single_thread,
)
from transformer.errors import ConfigError
from transformer.interfaces import GenerativeModel
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.coverage import coverage_penalties, decoder_inputs
from transformer.pipelines.translation.segmentation import Segment
from transformer.runtime.threads import check_gpu
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.special_tokens import SpecialTokenIds
from transformer.transformer import Transformer

MIN_TOKENS_PER_WORKER: Final = 2048
"""Minimum number of source tokens x hypotheses that justifies starting a process."""
MIN_TOKENS_PER_RUNNING_WORKER: Final = 512
"""Minimum number of source tokens x hypotheses that justifies using a process that runs."""
LONG_RATIO: Final = 4
LONG_EXTRA: Final = 5
"""A translation of more than LONG_RATIO x source + LONG_EXTRA tokens is too long; such pairs are not trained on."""
Results = Iterator[tuple[int, list[Hypothesis]]]
"""Index and hypotheses of each sentence, as they are completed."""


@dataclass(frozen=True)
class SearchedSegment:
    """A segment with its translations.

    Attributes:
        segment: The segment.
        hypotheses: Translations, best first.
        retried: Whether they come from a second search, see `Search.retry_degenerate`.
    """

    segment: Segment
    hypotheses: list[Hypothesis]
    retried: bool = False

    @property
    def best(self) -> Hypothesis:
        """The best translation."""
        return self.hypotheses[0]

    def is_degenerate(self, search: Search) -> bool:
        """Whether it was cut at the default limit, is far too long, or repeats itself unlike its source."""
        is_cut = not self.best.finished and search.max_tokens is None
        loops = repeats_itself(self.best.tokens) and not repeats_itself(self.segment.tokens)
        return is_cut or loops or self.is_long(search)

    def is_long(self, search: Search) -> bool:
        """Whether it is longer than in any training pair; its prefix and required phrases do not count."""
        constraints = self.segment.required
        n_required = sum(constraint.times * max(map(len, constraint.variants)) for constraint in constraints)
        n_fixed = len(self.segment.prefix) + n_required
        longest = LONG_RATIO * len(self.segment.tokens) + LONG_EXTRA + n_fixed
        return len(self.best.tokens) > max(longest, search.min_tokens)


@dataclass(frozen=True)
class PendingSearch:
    """Segments whose search has started.

    Attributes:
        segments: Segments in order.
        results: Hypotheses of each segment, which can be read once.
    """

    segments: Sequence[Segment]
    results: Results


class SegmentSearcher:
    """Searches for the translations of segments; keeps worker processes and CUDA graphs for the next segments.

    Args:
        generator: The model, or the ensemble, as the search sees it.
        models: Models of the ensemble, for the coverage penalty.
        config: Completed options of the translator, with the banned phrases in `search`.
        special_tokens: Special tokens of the target.
        device: Device of the models.
    """

    def __init__(
        self,
        generator: GenerativeModel,
        models: Sequence[Transformer],
        config: TranslatorConfig,
        special_tokens: SpecialTokenIds,
        device: torch.device,
    ) -> None:
        self.generator, self._models, self._config = generator, models, config
        self._special_tokens, self._device = special_tokens, device
        search = config.search
        self._search = replace(search, n_best=search.beam) if search.coverage else search  # all are ranked again
        self._batch_tokens = 1 if config.deterministic else config.batch_tokens
        self._pool: Workers | None = None
        self._graphed: GraphedSearcher | None = None

    def close(self) -> None:
        """Ends the worker processes and frees the captured CUDA graphs."""
        if self._pool is not None:
            self._pool.close()
        self._pool = self._graphed = None

    def begin(self, segments: Sequence[Segment]) -> PendingSearch:
        """Starts the search, in worker processes if there is enough work."""
        n_tokens = self._search.beam * sum(len(segment.tokens) for segment in segments)
        workers = self._workers_for(n_tokens)
        if workers is not None:
            batch_tokens = min(self._batch_tokens, -(-n_tokens // self._config.workers))
            return self._start(segments, partial(workers.search_each, batch_tokens=batch_tokens))
        if self._device.type == "cuda":
            check_gpu()
            self._graphed = self._graphed or GraphedSearcher(
                self.generator, self._search, self._device, self._config.max_source_tokens, self._special_tokens
            )
            return self._start(segments, partial(self._graphed.search_each, batch_tokens=self._batch_tokens))
        return self._start(segments, partial(self._search_in_process, search=self._search))

    def finish(self, pending: PendingSearch, on_segment: Callable[[int], None] | None = None) -> list[SearchedSegment]:
        """Returns the segments of a search with their translations, in order; this works once.

        Args:
            pending: Search that was started with `begin`.
            on_segment: Callback for progress, called with the index of each segment that has been searched for.

        Raises:
            WorkerError: A process was killed, or the processes were ended by `close`.
            ConfigError: The translations have been returned before.
        """
        with single_thread() if self._config.deterministic else nullcontext():
            hypotheses = self._collect(pending, on_segment)
            searched = [SearchedSegment(*pair) for pair in zip(pending.segments, hypotheses, strict=True)]
            return self._retry_degenerate(searched) if self._search.retry_degenerate else searched

    def search_again(self, segments: Sequence[Segment], **changes: int) -> list[SearchedSegment]:
        """Returns segments with their translations; searches in this process, also while workers search for others.

        Args:
            segments: Segments.
            **changes: Fields of the search that differ from those of the first one.
        """
        search = replace(self._search, **changes)
        is_shared = self._pool is not None and self._pool.is_busy  # another text uses the other cores
        with single_thread() if is_shared or self._config.deterministic else nullcontext():
            hypotheses = self._collect(self._start(segments, partial(self._search_in_process, search=search)))
            searched = [SearchedSegment(*pair) for pair in zip(segments, hypotheses, strict=True)]
            return self._retry_degenerate(searched) if self._search.retry_degenerate else searched

    def _workers_for(self, n_tokens: int) -> Workers | None:
        """Returns the worker processes if there are enough source tokens x hypotheses, and starts them if needed."""
        n = self._config.workers
        if n == 1 or current_process().daemon:
            return None
        pool = self._pool
        is_running = pool is not None and pool.matches(self.generator, self._search, n)
        if n_tokens < n * (MIN_TOKENS_PER_RUNNING_WORKER if is_running else MIN_TOKENS_PER_WORKER):
            return None
        if not is_running:  # the pool of another thread that starts one at the same time must not be closed
            pool = self._pool = Workers(self.generator, self._search, n, self._special_tokens)
        return pool

    def _search_in_process(self, requests: Iterable[Request], search: Search) -> Results:
        return search_each(
            self.generator, requests, search, batch_tokens=self._batch_tokens, device=self._device,
            special_tokens=self._special_tokens,
        )  # fmt: skip

    def _start(self, segments: Sequence[Segment], search: Callable[[Iterable[Request]], Results]) -> PendingSearch:
        """Starts a search for the segments longest first, so that a lack of memory shows early."""
        order = sorted(range(len(segments)), key=lambda index: -len(segments[index].tokens))
        results = search(self._request(segments[index]) for index in order)
        return PendingSearch(segments, ((order[rank], hypotheses) for rank, hypotheses in results))

    def _request(self, segment: Segment) -> Request:
        """Returns the request for a segment; its prefix ends before the first unknown token, and within the limit."""
        prefix, special = segment.prefix, self._special_tokens
        known = prefix[: prefix.index(special.unk)] if special.unk in prefix else prefix
        start = known[: segment.limit - 1]
        return Request(segment.tokens, segment.limit, start, segment.number, segment.required, special.bos, True)

    def _collect(
        self, pending: PendingSearch, on_segment: Callable[[int], None] | None = None
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each segment, in order."""
        completed: dict[int, list[Hypothesis]] = {}
        for index, hypotheses in pending.results:
            completed[index] = hypotheses
            if on_segment is not None:
                on_segment(index)
        if len(completed) < len(pending.segments):
            raise ConfigError("the translations of these lines were returned before; begin them again")
        in_order = [completed[index] for index in range(len(pending.segments))]
        return self._rerank_by_coverage(pending.segments, in_order) if self._search.coverage else in_order

    def _retry_degenerate(self, searched: Sequence[SearchedSegment]) -> list[SearchedSegment]:
        """Repeats the search of degenerate translations without repeated n-grams, and keeps those that improve."""
        search = self._search
        no_repeat = replace(search, no_repeat_ngram=min(search.no_repeat_ngram or RETRY_NGRAM, RETRY_NGRAM))
        indices = [index for index, segment in enumerate(searched) if segment.is_degenerate(search)]
        pool = self._pool
        is_shared = pool is not None and pool.is_busy  # another text uses the other cores
        with single_thread() if is_shared else nullcontext():
            segments = [searched[index].segment for index in indices]
            pending = self._start(segments, partial(self._search_in_process, search=no_repeat))
            hypotheses = self._collect(pending)
        improved = list(searched)
        for index, segment, segment_hypotheses in zip(indices, segments, hypotheses, strict=True):
            retried = SearchedSegment(segment, segment_hypotheses, retried=True)
            improved[index] = searched[index] if retried.is_degenerate(search) else retried
        return improved

    def _rerank_by_coverage(
        self, segments: Sequence[Segment], results: Sequence[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Ranks the hypotheses of every segment by their scores with the coverage penalty, finished ones first."""
        search = self._config.search
        pairs = [
            (segment.tokens, decoder_inputs(hypothesis.tokens, hypothesis.length, self._special_tokens.bos))
            for segment, hypotheses in zip(segments, results, strict=True)
            for hypothesis in hypotheses
        ]
        penalties = iter(coverage_penalties(self._models, pairs, self._batch_tokens, self._device))
        ranked: list[list[Hypothesis]] = []
        for hypotheses in results:
            covered = [replace(hyp, coverage=search.coverage * next(penalties)) for hyp in hypotheses]
            covered.sort(key=lambda hyp: (hyp.finished, normalized_score(hyp, search.length_penalty)), reverse=True)
            ranked.append(covered[: search.n_best])
        return ranked


def make_generator(
    models: Sequence[Transformer],
    sources: Sequence[Tokenizer],
    retokenizers: Sequence[Retokenize],
    shortlist: Shortlist | None,
    search: Search,
) -> GenerativeModel:
    """Combines the models of a translator into the one that the search sees.

    Args:
        models: One model, or several whose predictions are averaged.
        sources: Source tokenizer of each model.
        retokenizers: For each model, a function from the first model's source tokens to its own.
        shortlist: Target tokens that translations may use, given their sources; None is all tokens.
        search: Search options, for the kind of average.
    """
    generators = [
        model if retokenize is keep_tokens else RetokenizingModel(model, retokenize, source.special_tokens.pad or 0)
        for model, source, retokenize in zip(models, sources, retokenizers, strict=True)
    ]
    if shortlist is not None:
        generators = [ShortlistModel(generator, shortlist) for generator in generators]
    return generators[0] if len(models) == 1 else Ensemble(generators, search.average)
