"""Beam search on a GPU with CUDA graphs: several steps run while the CPU processes the results of earlier ones.

A step of a small model takes a GPU less time than Python needs to launch its kernels. For each shape of a batch, the
steps are therefore captured once as a CUDA graph over tensors at fixed addresses (`GraphedBatch`), and replayed by a
single call. What they selected is copied to the CPU asynchronously (`StepResults`). There, the same `BeamState` as in
`transformer.decoding.search` collects hypotheses and decides which sentences are done.
"""

import gc
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.blocks.cache import CausalCache, DecoderCache
from transformer.decoding.beam_state import BeamState
from transformer.decoding.candidates import Candidates, TopK, expand, is_end, n_candidates, prune
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.incremental_state import reorder_rows, resize_caches, state_tensors
from transformer.decoding.request import Request
from transformer.decoding.search import search_each
from transformer.interfaces import GenerativeModel
from transformer.kernels import best_tokens
from transformer.options.search import Search
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokenIds

STEPS_PER_LAUNCH: Final = 8
"""Number of steps that run before the CPU sees their results."""
LENGTH_MULTIPLE: Final = 16
"""Sources are padded to a multiple of it, so that few shapes have to be captured."""
BUCKET_SIZES: Final = sorted([*(2**power for power in range(13)), *(3 * 2**power for power in range(11))])
"""Numbers of sentences that batches are padded to; at most a third of a batch is padding."""
MEMORY_DIVISOR: Final = 4
"""The graphed batches that are not in use take up to the device's memory divided by this number."""
MAX_GRAPHED_BATCHES: Final = 64
"""Maximum number of graphed batches, however small they are."""


class BatchShape(NamedTuple):
    """The key of a graphed batch.

    Attributes:
        sentences: Number of sentences.
        source: Number of source tokens per sentence, padding included.
        prompt: Number of cache positions that prompts take before the first step.
        launches: Maximum number of launches, and thus of tokens per hypothesis in units of `STEPS_PER_LAUNCH`.
    """

    sentences: int
    source: int
    prompt: int
    launches: int


class GraphedSearcher:
    """Searches like `search_each` on one device with one model, and caches the graphs that it captured.

    It must be used by one thread at a time, since all batches of one shape share the same tensors.

    Args:
        model: Model in evaluation mode, on the device.
        search: Options of the search.
        device: A GPU; on any other device, for tests, the same steps run one by one without graphs.
        longest_source: Maximum number of source tokens that the model accepts.
        special_tokens: Special tokens of the model, as in `search_each`.
    """

    def __init__(
        self,
        model: GenerativeModel,
        search: Search,
        device: torch.device,
        longest_source: int,
        special_tokens: SpecialTokenIds = DEFAULT_SPECIAL_TOKENS,
    ) -> None:
        self.model, self.search, self.device, self.special_tokens = model, search, device, special_tokens
        self.longest_source = longest_source
        self._cache: dict[BatchShape, GraphedBatch] = {}
        self._capturer = GraphCapturer(device) if device.type == "cuda" else None
        self._can_capture = search.ranks_by_log_probability
        is_gpu = device.type == "cuda"
        memory = torch.cuda.get_device_properties(device).total_memory if is_gpu else 2**30
        self._max_bytes = memory // MEMORY_DIVISOR

    def search_each(self, requests: Iterable[Request], batch_tokens: int) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Same as `transformer.decoding.search_each`, with the same arguments and errors, but batch by batch.

        Batches with prefixes, constraints, logits processors or sampling are searched without graphs.
        """
        first = 0
        for batch in self._batches(requests, batch_tokens // self.search.beam):
            loaded = self._load(batch) if self._can_capture and not any(map(_is_constrained, batch)) else None
            if loaded is None:
                results = search_each(
                    self.model, batch, self.search, batch_tokens=len(batch) * batch_tokens, device=self.device,
                    special_tokens=self.special_tokens,
                )  # fmt: skip
            else:
                results = self._decode(*loaded)
            for index, hypotheses in results:
                yield first + index, hypotheses
            first += len(batch)

    def _load(self, batch: Sequence[Request]) -> "tuple[GraphedBatch, BeamState] | None":
        """Loads sentences into a graphed batch; returns it with the CPU's view of them.

        Returns None if the model's state cannot be captured.
        """
        padding = BUCKET_SIZES[bisect_left(BUCKET_SIZES, len(batch))] - len(batch)
        padded = [*batch, *[batch[-1]] * padding]
        length = self._padded_length(max(len(request.source) for request in batch))
        with torch.inference_mode():
            beams = BeamState.begin(
                self.model, list(enumerate(padded)), self.search, self.device, self.special_tokens, pad_to=length
            )
            if not isinstance(beams.state, CausalCache | DecoderCache):
                self._can_capture = False
                return None
            limit = max(request.limit for request in batch)
            shape = BatchShape(len(padded), length, beams.state.longest, -(-limit // STEPS_PER_LAUNCH))
            graphed = self._cache.pop(shape, None)
            if graphed is None:
                self._evict()
                max_tokens = shape.launches * STEPS_PER_LAUNCH
                graphed = GraphedBatch(self.model, self.search, self.special_tokens, beams, max_tokens, self._capturer)
            else:
                graphed.load(beams)
            self._cache[shape] = graphed  # the most recently used one is last
            return graphed, _cpu_view(beams, len(batch))

    def _batches(self, requests: Iterable[Request], max_tokens: int) -> Iterator[list[Request]]:
        """Yields batches of consecutive requests with a bucket size; the first request must have the longest source."""
        waiting = iter(requests)
        for first in waiting:
            n = max_tokens // max(self._padded_length(len(first.source)), 1)
            yield [first, *islice(waiting, BUCKET_SIZES[max(bisect_right(BUCKET_SIZES, n), 1) - 1] - 1)]

    def _evict(self) -> None:
        """Removes the least recently used batches from the cache until the others fit into memory."""
        nbytes = sum(graphed.nbytes for graphed in self._cache.values())
        while nbytes > self._max_bytes or len(self._cache) >= MAX_GRAPHED_BATCHES:
            nbytes -= self._cache.pop(next(iter(self._cache))).nbytes

    def _padded_length(self, length: int) -> int:
        """Returns the length that sources are padded to, given that of the longest one."""
        return max(min(LENGTH_MULTIPLE * -(-length // LENGTH_MULTIPLE), self.longest_source), length)

    def _decode(self, graphed: "GraphedBatch", beams: BeamState) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Runs steps until all sentences are done, and yields the hypotheses of each.

        The next steps are launched while the CPU reads results, until half of the sentences are done: the others rarely
        take much longer.
        """
        n, limit, begun = len(beams.sentences), max(sentence.request.limit for sentence in beams.sentences), 0
        launched: deque[StepResults] = deque()
        remaining: BeamState | None = beams
        while remaining is not None:
            while begun < limit and (not launched or (len(launched) < 2 and 2 * len(remaining.sentences) > n)):
                launched.append(graphed.launch(begun, min(STEPS_PER_LAUNCH, limit - begun)))
                begun += launched[-1].steps
            for finished, active in launched.popleft():
                with torch.inference_mode():
                    if len(remaining.sentences) < len(finished.tokens):
                        slots = cast(SlotMap, remaining.state).slots
                        finished, active = finished.select(slots), active.select(slots)
                    remaining.collect_finished(finished, slice(0, self.search.beam), 0)
                    done, remaining = remaining.advance(active, self.search)
                for sentence in done:
                    yield sentence.index, sentence.hypotheses(self.search)
                if remaining is None:
                    break


@dataclass
class SlotMap:
    """The slots in a graphed batch of the sentences that are not done; the `State` of the CPU's `BeamState`.

    Attributes:
        slots: Slot of each sentence.
        width: Number of hypotheses per sentence.
    """

    slots: Int[Tensor, " N"]
    width: int

    def select(self, rows: Int[Tensor, " R"]) -> "SlotMap":
        """Implements `State.select` for sentences; the graphed batch reorders their hypotheses itself."""
        return SlotMap(self.slots[rows[:: self.width] // self.width], self.width)


class GraphedBatch:
    """N sentences with W hypotheses each, in tensors at fixed addresses, whose steps run without the CPU.

    Args:
        model: Model that the state belongs to.
        search: Options that rank hypotheses by unprocessed log-probabilities.
        special_tokens: Special tokens of the model.
        beams: First sentences; their tensors become the fixed ones.
        max_tokens: Maximum number of tokens of a hypothesis.
        capturer: Captures steps as graphs; None without a GPU.

    Attributes:
        nbytes: Memory of the fixed tensors.
    """

    def __init__(
        self,
        model: GenerativeModel,
        search: Search,
        special_tokens: SpecialTokenIds,
        beams: BeamState,
        max_tokens: int,
        capturer: "GraphCapturer | None",
    ) -> None:
        state = cast(CausalCache | DecoderCache, beams.state)
        self.model, self.search, self.ends = model, search, special_tokens.ends
        self.longest, self.max_tokens = state.longest, max_tokens
        self.state = resize_caches(state, self.longest + max_tokens)
        self.tokens, self.scores = beams.tokens, beams.scores
        with_caches = replace(self.state)
        with_caches.longest = self.longest + 1  # `state_tensors` includes caches only if something is written
        self.nbytes = sum(x.nbytes for x in state_tensors(with_caches))
        n, width = self.scores.shape
        self.first_rows = width * torch.arange(n, device=self.scores.device)[:, None]
        self.special_tokens = special_tokens
        self.sums = self.scores.new_empty(STEPS_PER_LAUNCH, 2, n, width)
        self.ids = self.tokens.new_empty(STEPS_PER_LAUNCH, 3, n, width, dtype=torch.int32)
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._capturer = capturer
        self._never: tuple[Tensor, Tensor] | None = None

    def load(self, beams: BeamState) -> None:
        """Overwrites the sentences with others of the same shape."""
        state = cast(CausalCache | DecoderCache, beams.state)
        if self.longest:  # otherwise the caches are empty
            state = resize_caches(state, self.longest + self.max_tokens)
        for fixed, new in zip(
            self._tensors(self.state), [*state_tensors(state), beams.tokens, beams.scores], strict=True
        ):
            fixed.copy_(new)

    def launch(self, begun: int, steps: int) -> "StepResults":
        """Runs `steps` steps after the first `begun` ones; on a GPU, it returns before they are finished."""
        if self._capturer is None:
            self._run_steps(begun, steps)
            return StepResults(steps, self.sums, self.ids, self.ends)
        with torch.cuda.device(self.scores.device):
            if not self._graphs:
                self._run_steps(begun, 1, keep=False)  # initializes libraries; the graph overwrites its results
                torch.cuda.empty_cache()  # capturing uses free memory, not what the caching allocator reserves
            if (begun, steps) not in self._graphs:
                self._graphs[begun, steps] = self._capturer.capture(lambda: self._run_steps(begun, steps))
            self._graphs[begun, steps].replay()
            return StepResults(steps, self.sums, self.ids, self.ends)

    @torch.inference_mode()
    def _run_steps(self, begun: int, steps: int, *, keep: bool = True) -> None:
        """Runs steps and records what they selected; `keep` copies the new state to the fixed tensors."""
        width = self.scores.size(1)
        state = resize_caches(self.state, self.longest + begun + steps)
        state.longest = self.longest + begun
        tokens, scores = self.tokens, self.scores
        for step in range(steps):
            logits, stepped = self.model.step(tokens.flatten(), state)
            state = cast("CausalCache | DecoderCache", stepped)  # a model returns the kind of state that it was given
            never = self._never_mask(logits.size(1), begun + step)
            k = n_candidates(width, self.ends)
            best = best_tokens(logits, min(k, logits.size(1)), never)
            log_p, ids = (x.unflatten(0, scores.shape) for x in best)
            candidates = expand(TopK(ids, log_p, log_p), scores, scores, k)
            active = prune(candidates, width, self.ends)
            tokens, scores = active.tokens, active.scores
            if width > 1:
                state = reorder_rows(state, (self.first_rows + active.beam_indices).flatten())
            is_eos = is_end(candidates.tokens[:, :width], self.ends)
            self.sums[step, 0] = candidates.ranking_scores[:, :width].masked_fill(~is_eos, -torch.inf)
            self.sums[step, 1] = scores
            for row, indices in enumerate((candidates.beam_indices[:, :width], active.beam_indices, tokens)):
                self.ids[step, row] = indices
        if keep:
            fixed_state = resize_caches(self.state, self.longest + begun + steps)
            fixed_state.longest = state.longest
            for fixed, new in zip(self._tensors(fixed_state), [*state_tensors(state), tokens, scores], strict=True):
                if fixed.data_ptr() != new.data_ptr():
                    fixed.copy_(new)

    def _never_mask(self, vocab_size: int, length: int) -> Bool[Tensor, " V"]:
        """Returns a mask of the tokens that are never generated after `length` tokens."""
        if self._never is None:
            late = torch.zeros(vocab_size, dtype=torch.bool, device=self.scores.device)
            for token in self.special_tokens.suppressed_ids(allow_unknown=self.search.allow_unknown):
                late[token] = True
            early = late.clone()
            for end in self.ends:
                early[end] = True
            self._never = early, late
        return self._never[length >= self.search.min_tokens]

    def _tensors(self, state: CausalCache | DecoderCache) -> list[Tensor]:
        return [*state_tensors(state), self.tokens, self.scores]


class GraphCapturer:
    """Captures CUDA graphs that share one memory pool, since only one runs at a time.

    Args:
        device: A GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # one for all graphs: a pool reuses memory only within a stream
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, call: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Captures the GPU work that `call` launches, without running it."""
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream), garbage_collection_disabled():
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                call()
            finally:
                graph.capture_end()
        current.wait_stream(self._stream)
        return graph


@contextmanager
def garbage_collection_disabled() -> Generator[None]:
    """Disables garbage collection: freeing an object that owns a kernel would abort the capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class StepResults:
    """The results of several steps, copied to the CPU asynchronously.

    Args:
        steps: Number of steps.
        sums: Scores of the hypotheses that finished at each step (-inf if none did), and of the active ones.
        ids: Beam indices of the finished hypotheses, those of the active ones, and the tokens of the active ones.
        ends: Tokens that end a sentence.
    """

    def __init__(
        self, steps: int, sums: Float[Tensor, "C 2 N W"], ids: Int[Tensor, "C 3 N W"], ends: tuple[int, ...]
    ) -> None:
        self.steps, self.end = steps, ends[0] if ends else -1
        is_gpu = sums.device.type == "cuda"
        self._sums, self._ids = (
            torch.empty(x[:steps].shape, dtype=x.dtype, pin_memory=is_gpu, device="cpu") for x in (sums, ids)
        )
        self._sums.copy_(sums[:steps], non_blocking=is_gpu)
        self._ids.copy_(ids[:steps], non_blocking=is_gpu)
        self._copied = torch.cuda.Event() if is_gpu else None
        if self._copied is not None:
            self._copied.record()

    def __iter__(self) -> Iterator[tuple[Candidates, Candidates]]:
        """Yields the finished candidates (missing ones with the score -inf) and the active ones of each step."""
        if self._copied is not None:
            self._copied.synchronize()
        for sums, ids in zip(self._sums, self._ids.long(), strict=True):
            ends = torch.full_like(ids[0], self.end)  # which of several it was makes no difference
            yield Candidates(sums[0], sums[0], ids[0], ends), Candidates(sums[1], sums[1], ids[1], ids[2])


def _cpu_view(beams: BeamState, n: int) -> BeamState:
    """Copies the first n sentences of a state to the CPU, without the model's state, which stays on the GPU."""
    scores = beams.scores[:n].cpu()
    return replace(
        beams, sentences=beams.sentences[:n], state=SlotMap(torch.arange(n), scores.size(1)),
        tokens=beams.tokens[:n].cpu(), scores=scores, ranking_scores=scores, generated=beams.generated[:n].cpu(),
    )  # fmt: skip


def _is_constrained(request: Request) -> bool:
    """Whether anything but the model's log-probabilities affects a request."""
    return bool(request.prefix or request.required)
