"""The second stage of a translation: segments are searched for, in this process, in a pool, or with CUDA graphs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing import current_process
from typing import Final, TypeVar, get_args

import torch

from transformer.decoding import (
    Average,
    Ensemble,
    GraphedSearcher,
    Hypothesis,
    Request,
    Retokenize,
    RetokenizingModel,
    Search,
    SharedModels,
    Shortlist,
    ShortlistModel,
    Workers,
    keep_tokens,
    search_each,
    single_thread,
)
from transformer.errors import ConfigError
from transformer.interfaces import GenerativeModel
from transformer.pipelines.translation.bayes_risk import rank_by_risk
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.coverage import coverage_penalties, decoder_inputs
from transformer.pipelines.translation.reranking import Reranker
from transformer.pipelines.translation.segment import Segment
from transformer.runtime.threads import check_gpu
from transformer.tokenizers.base import Tokenizer
from transformer.transformer import Transformer

MIN_TOKENS_PER_WORKER: Final = 2048
"""Minimum number of source tokens x hypotheses that justifies starting a process."""
MIN_TOKENS_PER_RUNNING_WORKER: Final = 512
"""Minimum number of source tokens x hypotheses that justifies using a process that runs."""
Results = Iterator[tuple[int, list[Hypothesis]]]
"""Index and hypotheses of each sentence, as they are completed."""
T = TypeVar("T")


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


@dataclass(frozen=True)
class PendingSearch:
    """Segments whose search has started.

    Attributes:
        segments: Segments in order.
        options: Options of the call.
        results: Hypotheses of each segment, which can be read once.
    """

    segments: Sequence[Segment]
    options: TranslatorConfig
    results: Results


class SegmentSearcher:
    """Searches for the translations of segments; keeps one pool of processes, or CUDA graphs, for the next segments.

    Args:
        shared: The models and their special tokens.
        device: Device of the models.
        decode: Function that returns the text of target tokens.
        reranker: Ranks hypotheses by a model of the other direction as well; None without one.
    """

    def __init__(
        self,
        shared: SharedModels,
        device: torch.device,
        decode: Callable[[Sequence[int]], str],
        reranker: Reranker | None = None,
    ) -> None:
        self.shared, self._device, self._decode, self._reranker = shared, device, decode, reranker
        self._pool: Workers | None = None
        self._graphed: GraphedSearcher | None = None

    def close(self) -> None:
        """Ends the worker processes and frees the captured CUDA graphs."""
        if self._pool is not None:
            self._pool.close()
        self._pool = self._graphed = None

    def begin(self, segments: Sequence[Segment], options: TranslatorConfig) -> PendingSearch:
        """Starts the search, in worker processes if there is enough work.

        Args:
            segments: Segments.
            options: Options of the call.
        """
        search, batch_tokens = self._all_hypotheses(options.search), _batch_tokens(options)
        n_tokens = search.beam * sum(len(segment.tokens) for segment in segments)
        pool = self._pool_for(n_tokens, options) if Workers.accept(search) else None
        if pool is not None:
            batch_tokens = min(batch_tokens, -(-n_tokens // options.workers))
            run = partial(pool.search_each, search=search, batch_tokens=batch_tokens)
        elif self._device.type == "cuda":
            check_gpu()
            run = partial(self._graphs_for(search, options).search_each, batch_tokens=batch_tokens)
        else:
            run = partial(self._search_in_process, search=search, batch_tokens=batch_tokens)
        return self._start(segments, options, run)

    def finish(self, pending: PendingSearch, on_segment: Callable[[int], None] | None = None) -> list[SearchedSegment]:
        """Returns the segments of a search with their translations, in order; this works once.

        Args:
            pending: Search that was started with `begin`.
            on_segment: Callback for progress, called with the index of each segment that has been searched for.

        Raises:
            WorkerError: Processes were killed, or processes were ended by `close`.
            ConfigError: The translations have been returned before.
        """
        with single_thread() if pending.options.deterministic else nullcontext():
            return self._collect(pending, on_segment)

    def search_again(
        self, segments: Sequence[Segment], options: TranslatorConfig, search: Search
    ) -> list[SearchedSegment]:
        """Returns segments with their translations; searches in this process, also while the pool searches for others.

        Args:
            segments: Segments.
            options: Options of the call.
            search: Options of this search.
        """
        if not segments:
            return []
        run = partial(self._search_in_process, search=self._all_hypotheses(search), batch_tokens=_batch_tokens(options))
        with single_thread() if self._is_shared or options.deterministic else nullcontext():
            return self._collect(self._start(segments, replace(options, search=search), run))

    def run(
        self, tasks: Iterable[Callable[[SharedModels], T]], n_tokens: int, options: TranslatorConfig
    ) -> Iterator[T]:
        """Yields the results of other tasks, in order, from worker processes if there is enough work.

        Args:
            tasks: Functions of the models that can be pickled.
            n_tokens: Number of tokens of all tasks.
            options: Options of the call.
        """
        pool = self._pool_for(n_tokens, options)
        return (task(self.shared) for task in tasks) if pool is None else pool.map(tasks)

    @property
    def _is_shared(self) -> bool:
        """Whether the pool searches for another text, which uses the other cores."""
        return self._pool is not None and self._pool.is_busy

    def _all_hypotheses(self, search: Search) -> Search:
        """Returns a search that keeps all hypotheses if they are ranked again."""
        is_ranked_again = search.coverage or search.mbr or self._reranker is not None
        return replace(search, n_best=search.beam) if is_ranked_again else search

    def _pool_for(self, n_tokens: int, options: TranslatorConfig) -> Workers | None:
        """Returns the pool if there are enough source tokens x hypotheses, and starts it if needed."""
        n = options.workers
        if n == 1 or current_process().daemon:
            return None
        pool = self._pool
        is_running = pool is not None and pool.is_open
        if n_tokens < n * (MIN_TOKENS_PER_RUNNING_WORKER if is_running else MIN_TOKENS_PER_WORKER):
            return None
        if not is_running:  # the pool of another thread that starts one at the same time must not be closed
            pool = self._pool = Workers(self.shared, n)
        return pool

    def _graphs_for(self, search: Search, options: TranslatorConfig) -> GraphedSearcher:
        """Returns the captured graphs of a search; those of another search are freed."""
        if self._graphed is None or self._graphed.search != search:
            model, special_tokens = self.shared.generators[search.average], self.shared.special_tokens
            self._graphed = GraphedSearcher(model, search, self._device, options.max_source_tokens, special_tokens)
        return self._graphed

    def _search_in_process(self, requests: Iterable[Request], search: Search, batch_tokens: int) -> Results:
        return search_each(
            self.shared.generators[search.average], requests, search, batch_tokens=batch_tokens, device=self._device,
            special_tokens=self.shared.special_tokens,
        )  # fmt: skip

    def _start(
        self, segments: Sequence[Segment], options: TranslatorConfig, run: Callable[[Iterable[Request]], Results]
    ) -> PendingSearch:
        """Starts a search for the segments longest first, so that a lack of memory shows early."""
        order = sorted(range(len(segments)), key=lambda index: -len(segments[index].tokens))
        results = run(self._request(segments[index]) for index in order)
        return PendingSearch(segments, options, ((order[rank], hypotheses) for rank, hypotheses in results))

    def _request(self, segment: Segment) -> Request:
        """Returns the request for a segment; its prefix ends before the first unknown token, and within the limit."""
        prefix, special = segment.prefix, self.shared.special_tokens
        known = prefix[: prefix.index(special.unk)] if special.unk in prefix else prefix
        start = known[: segment.limit - 1]
        return Request(segment.tokens, segment.limit, start, segment.number, (), special.bos, True)

    def _collect(
        self, pending: PendingSearch, on_segment: Callable[[int], None] | None = None
    ) -> list[SearchedSegment]:
        """Returns the segments with their hypotheses, in order."""
        completed: dict[int, list[Hypothesis]] = {}
        for index, hypotheses in pending.results:
            completed[index] = hypotheses
            if on_segment is not None:
                on_segment(index)
        if len(completed) < len(pending.segments):
            raise ConfigError("the translations of these lines were returned before; begin them again")
        in_order = [completed[index] for index in range(len(pending.segments))]
        search = pending.options.search
        if search.coverage:
            in_order = self._rerank_by_coverage(pending, in_order)
        if self._reranker is not None:
            with single_thread() if self._is_shared else nullcontext():
                in_order = self._reranker.rerank([segment.tokens for segment in pending.segments], in_order, search)
        if search.mbr:
            ranked = (rank_by_risk(hypotheses, self._decode, search.mbr) for hypotheses in in_order)
            in_order = [hypotheses[: search.n_best] for hypotheses in ranked]
        return [SearchedSegment(*pair) for pair in zip(pending.segments, in_order, strict=True)]

    def _rerank_by_coverage(
        self, pending: PendingSearch, results: Sequence[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Ranks the hypotheses of every segment by their scores with the coverage penalty, finished ones first."""
        search, segments = pending.options.search, pending.segments
        pairs = [
            (segment.tokens, decoder_inputs(hypothesis.tokens, hypothesis.length, self.shared.special_tokens.bos))
            for segment, hypotheses in zip(segments, results, strict=True)
            for hypothesis in hypotheses
        ]
        penalties = iter(coverage_penalties(self.shared.models, pairs, _batch_tokens(pending.options), self._device))
        ranked: list[list[Hypothesis]] = []
        for hypotheses in results:
            covered = [replace(hyp, rerank_term=search.coverage * next(penalties)) for hyp in hypotheses]
            covered.sort(key=lambda hyp: (hyp.finished, hyp.normalized_score(search.length_penalty)), reverse=True)
            ranked.append(covered[: search.n_best])
        return ranked


def _batch_tokens(options: TranslatorConfig) -> int:
    """Returns the batch size: one line at a time where translations must not depend on others."""
    return 1 if options.deterministic else options.batch_tokens


def group_by_line(
    counts: Sequence[int], segments: Iterable[SearchedSegment], n_lines: int
) -> list[list[SearchedSegment]]:
    """Returns the segments of each line.

    Args:
        counts: Number of segments of each line.
        segments: Segments of all lines, in order.
        n_lines: Number of lines that there must be.

    Raises:
        RuntimeError: There are more or fewer lines or segments.
    """
    remaining = iter(segments)
    groups = [[*islice(remaining, count)] for count in counts]
    n_complete = sum(len(group) == count for group, count in zip(groups, counts, strict=True))
    if n_complete != n_lines or next(remaining, None) is not None:  # n lines in, n lines out
        raise RuntimeError(f"{n_lines} lines became {n_complete} whole translations")
    return groups


def count_finished_lines(
    segments_of_lines: Sequence[int], done: Callable[[int], None] | None
) -> Callable[[int], None] | None:
    """Converts a callback for finished lines to one for finished segments.

    Args:
        segments_of_lines: Number of segments of each line; lines without segments are reported at once.
        done: Callback with the number of lines that were finished since the last call.

    Returns:
        Callback with the index of a finished segment; None if `done` is None.
    """
    if done is None:
        return None
    line_of = [index for index, count in enumerate(segments_of_lines) for _ in range(count)]
    remaining = Counter(line_of)
    done(len(segments_of_lines) - len(remaining))

    def on_segment(segment: int) -> None:
        line = line_of[segment]
        remaining[line] -= 1
        if not remaining[line]:
            done(1)

    return on_segment


def make_generators(
    models: Sequence[Transformer],
    sources: Sequence[Tokenizer],
    retokenizers: Sequence[Retokenize],
    shortlist: Shortlist | None,
) -> dict[Average, GenerativeModel]:
    """Combines the models of a translator into the one that the search sees, for each kind of average.

    Args:
        models: One model, or several whose predictions are averaged.
        sources: Source tokenizer of each model.
        retokenizers: For each model, a function from the first model's source tokens to its own.
        shortlist: Target tokens that translations may use, given their sources; None is all tokens.
    """
    generators = [
        model if retokenize is keep_tokens else RetokenizingModel(model, retokenize, source.special_tokens.padding)
        for model, source, retokenize in zip(models, sources, retokenizers, strict=True)
    ]
    if shortlist is not None:
        generators = [ShortlistModel(generator, shortlist) for generator in generators]
    return {
        average: generators[0] if len(models) == 1 else Ensemble(generators, average) for average in get_args(Average)
    }
