"""Search on a GPU, which makes several steps on its own while the host keeps the books of those before.

A step of a small model takes a GPU less time than Python takes to ask for it. So its steps are recorded once for each
shape of a batch, as a CUDA graph, and then asked for by a single call; what they chose comes back to the host together.
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

from transformer.decoding.beam_state import BeamState, end_of
from transformer.decoding.candidates import Candidates, TopK, expand, prune
from transformer.decoding.config import Request, Search
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.search import search_each
from transformer.interfaces import GenerativeModel, GraphCapturableState
from transformer.kernels import best_tokens
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokenIds

STEPS: Final = 8
"""That are made before the host looks at them."""
MULTIPLE: Final = 16
"""Sources are filled up to one of it, so that few shapes have to be recorded."""
BUCKET_SIZES: Final = sorted([*(2**power for power in range(13)), *(3 * 2**power for power in range(11))])
"""Sentences of a shape: at most a third of its places stays empty."""
SHARE: Final = 4
"""Boards take up to one part in so many of the memory, the one in use aside."""
MOST_BOARDS: Final = 64
"""However small they are."""


class BatchShape(NamedTuple):
    """What tells boards apart.

    Attributes:
        sentences: how many.
        source: tokens of each.
        taken: positions that prompts take of what hypotheses are written to.
        steps: most tokens of a hypothesis, in runs of steps.
    """

    sentences: int
    source: int
    taken: int
    steps: int


class GraphedSearcher:
    """Searches on one device with one model, as `search_each` does, and remembers what it recorded.

    It is for one thread at a time: batches of one shape have the same places.

    Args:
        model: in evaluation mode, on the device.
        search: how.
        device: a GPU; on any other the same steps are made one by one, which is for tests.
        longest_source: most tokens that the model reads.
        special_tokens: as in `search_each`.
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
        self._boards: dict[BatchShape, GraphedBatch] = {}
        self._recorder = GraphCapturer(device) if device.type == "cuda" else None
        self._is_able = search.follows_the_model
        is_gpu = device.type == "cuda"
        self._most_bytes = (torch.cuda.get_device_properties(device).total_memory if is_gpu else 2**30) // SHARE

    def search_each(self, requests: Iterable[Request], batch_tokens: int) -> Iterator[tuple[int, list[Hypothesis]]]:
        """As `transformer.decoding.search_each`, whose arguments and errors these are, batch by batch.

        What the model alone does not decide (prefixes, required phrases, rules, samples) is searched for step by step.
        """
        first = 0
        for batch in self._batches(requests, batch_tokens // self.search.beam):
            begun = self._begin(batch) if self._is_able and not any(map(_is_bound, batch)) else None
            if begun is None:
                found = search_each(
                    self.model, batch, self.search, batch_tokens=len(batch) * batch_tokens, device=self.device,
                    special_tokens=self.special_tokens,
                )  # fmt: skip
            else:
                found = self._finish(*begun)
            for index, hypotheses in found:
                yield first + index, hypotheses
            first += len(batch)

    def _begin(self, batch: Sequence[Request]) -> "tuple[GraphedBatch, BeamState] | None":
        """The sentences in their places, and what the host knows of them; None if the model's state has no places."""
        filled = [*batch, *[batch[-1]] * (BUCKET_SIZES[bisect_left(BUCKET_SIZES, len(batch))] - len(batch))]
        numbered = list(enumerate(filled))
        length = self._filled_up(max(len(request.source) for request in batch))
        with torch.inference_mode():
            table = BeamState.begin(
                self.model, numbered, self.search, self.device, self.special_tokens, filled_up_to=length
            )
            if not isinstance(table.state, GraphCapturableState):
                self._is_able = False
                return None
            most = max(request.limit for request in batch)
            shape = BatchShape(len(filled), length, table.state.longest, -(-most // STEPS))
            board = self._boards.pop(shape, None)
            if board is None:
                self._give_up()
                board = GraphedBatch(
                    self.model, self.search, self.special_tokens, table, shape.steps * STEPS, self._recorder
                )
            else:
                board.place(table)
            self._boards[shape] = board  # the one used last stands last
            return board, _on_host(table, len(batch))

    def _batches(self, requests: Iterable[Request], most_tokens: int) -> Iterator[list[Request]]:
        """As many neighbours as an even shape has, of sources like the first of them, which is the longest."""
        waiting = iter(requests)
        for first in waiting:
            n = most_tokens // max(self._filled_up(len(first.source)), 1)
            yield [first, *islice(waiting, BUCKET_SIZES[max(bisect_right(BUCKET_SIZES, n), 1) - 1] - 1)]

    def _give_up(self) -> None:
        """Forgets the boards that were used least recently, where together they take too much memory."""
        taken = sum(board.nbytes for board in self._boards.values())
        while taken > self._most_bytes or len(self._boards) >= MOST_BOARDS:
            taken -= self._boards.pop(next(iter(self._boards))).nbytes

    def _filled_up(self, length: int) -> int:
        """To what sources are filled up, of which the longest has a length."""
        return max(min(MULTIPLE * -(-length // MULTIPLE), self.longest_source), length)

    def _finish(self, board: "GraphedBatch", table: BeamState) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Lets the board make steps until all sentences are done.

        It goes on while the host reads, until half of the sentences are done: the others rarely take long.
        """
        n, limit, begun = len(table.sentences), max(each.request.limit for each in table.sentences), 0
        ahead: deque[Steps] = deque()
        left: BeamState | None = table
        while left is not None:
            while begun < limit and (not ahead or (len(ahead) < 2 and 2 * len(left.sentences) > n)):
                ahead.append(board.launch(begun, min(STEPS, limit - begun)))
                begun += ahead[-1].steps
            for ended, followed in ahead.popleft():
                with torch.inference_mode():
                    if len(left.sentences) < len(ended.tokens):
                        places = cast(SlotMap, left.state).sentences
                        ended, followed = ended.of(places), followed.of(places)
                    left.end(ended, slice(0, self.search.beam), 0)
                    left.follow(followed, self.search)
                    if done := [sentence for sentence in left.sentences if sentence.done]:
                        left = left.leave(followed.beam_indices)
                for sentence in done:
                    yield sentence.index, sentence.hypotheses(self.search)
                if left is None:
                    break


@dataclass
class SlotMap:
    """Where on a board the sentences stand that the host still keeps books of; to a table it is their state.

    Attributes:
        sentences: place of each.
        width: hypotheses of each.
    """

    sentences: Int[Tensor, " N"]
    width: int

    def select(self, rows: Int[Tensor, " R"]) -> "SlotMap":
        """As `State.select`; only sentences move, the board keeps their hypotheses in order."""
        return SlotMap(self.sentences[rows[:: self.width] // self.width], self.width)

    def join(self, other: "SlotMap") -> "SlotMap":
        """As `State.join`."""
        return SlotMap(torch.cat([self.sentences, other.sentences]), self.width)


class GraphedBatch:
    """N sentences with W hypotheses each at fixed places in memory, where steps are made without the host.

    Args:
        model: of the state.
        search: that follows the model alone.
        special_tokens: Ids of the special tokens.
        table: the first sentences; their tensors become the places.
        room: most tokens of a hypothesis.
        recorder: of steps as graphs, on a GPU.

    Attributes:
        nbytes: memory of the places.
    """

    def __init__(
        self,
        model: GenerativeModel,
        search: Search,
        special_tokens: SpecialTokenIds,
        table: BeamState,
        room: int,
        recorder: "GraphCapturer | None",
    ) -> None:
        state = cast(GraphCapturableState, table.state)
        self.model, self.search, self.end_id = model, search, end_of(special_tokens)
        self.longest, self.room = state.longest, room
        self.state, self.tokens, self.scores = state.resized(self.longest + room), table.tokens, table.scores
        everything = self.state.resized(self.longest + room)
        everything.longest = self.longest + 1
        self.nbytes = sum(x.nbytes for x in everything.tensors())
        n, width = self.scores.shape
        self.first_rows = width * torch.arange(n, device=self.scores.device)[:, None]
        self.special_tokens = special_tokens
        self.sums = self.scores.new_empty(STEPS, 2, n, width)
        self.ids = self.tokens.new_empty(STEPS, 3, n, width, dtype=torch.int32)
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._recorder = recorder
        self._never: tuple[Tensor, Tensor] | None = None

    def place(self, table: BeamState) -> None:
        """Puts other sentences of the same shape where the first ones were."""
        state = cast(GraphCapturableState, table.state)
        state = state.resized(self.longest + self.room) if self.longest else state  # else nothing is written yet
        for ours, theirs in zip(self._all(self.state), [*state.tensors(), table.tokens, table.scores], strict=True):
            ours.copy_(theirs)

    def launch(self, begun: int, steps: int) -> "Steps":
        """Makes some steps after those begun; on a GPU it returns at once, and they are made one after another."""
        if self._recorder is None:
            self._make(begun, steps)
            return Steps(steps, self.sums, self.ids, self.end_id)
        with torch.cuda.device(self.scores.device):
            if not self._graphs:
                self._make(begun, 1, keep=False)  # libraries set themselves up; what it writes is written again
                torch.cuda.empty_cache()  # recording takes what is free, not what is kept for others
            if (begun, steps) not in self._graphs:
                self._graphs[begun, steps] = self._recorder.record(lambda: self._make(begun, steps))
            self._graphs[begun, steps].replay()
            return Steps(steps, self.sums, self.ids, self.end_id)

    @torch.inference_mode()
    def _make(self, begun: int, steps: int, *, keep: bool = True) -> None:
        """Makes steps, writes down what they chose, and leaves everything in its place for those that follow."""
        width = self.scores.size(1)
        state = self.state.resized(self.longest + begun + steps)
        state.longest = self.longest + begun
        tokens, scores = self.tokens, self.scores
        for step in range(steps):
            logits, state = self.model.step(tokens.flatten(), state)
            never = self._never_written(logits.size(1), begun + step)
            best = best_tokens(logits, min(2 * width, logits.size(1)), never)
            log_p, best_of = (each.unflatten(0, scores.shape) for each in best)
            candidates = expand(TopK(best_of, log_p, log_p), scores, scores, 2 * width)
            followed = prune(candidates, width, self.end_id)
            tokens, scores = followed.tokens, followed.scores
            if width > 1:
                state = state.reordered((self.first_rows + followed.beam_indices).flatten())
            ends = candidates.tokens[:, :width] == self.end_id
            self.sums[step, 0] = candidates.values[:, :width].masked_fill(~ends, -torch.inf)
            self.sums[step, 1] = scores
            for place, each in enumerate((candidates.beam_indices[:, :width], followed.beam_indices, tokens)):
                self.ids[step, place] = each
        if keep:
            places = self.state.resized(self.longest + begun + steps)
            places.longest = state.longest
            for ours, theirs in zip(self._all(places), [*state.tensors(), tokens, scores], strict=True):
                if ours.data_ptr() != theirs.data_ptr():
                    ours.copy_(theirs)

    def _never_written(self, vocabulary: int, length: int) -> Bool[Tensor, " V"]:
        """Which tokens do not follow on so many."""
        if self._never is None:
            late = torch.zeros(vocabulary, dtype=torch.bool, device=self.scores.device)
            for token in self.special_tokens.suppressed_ids(allow_unknown=self.search.allow_unknown):
                late[token] = True
            early = late.clone()
            if self.end_id >= 0:
                early[self.end_id] = True
            self._never = early, late
        return self._never[length >= self.search.min_tokens]

    def _all(self, state: GraphCapturableState) -> list[Tensor]:
        return [*state.tensors(), self.tokens, self.scores]


class GraphCapturer:
    """Records graphs that share memory, since one runs at a time and nothing of it is read by another.

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # of all of them: memory is used again on its own stream alone
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, call: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """What a call asks of the GPU, without doing it."""
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream), left_uncollected():
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                call()
            finally:
                graph.capture_end()
        current.wait_stream(self._stream)
        return graph


@contextmanager
def left_uncollected() -> Generator[None]:
    """Nothing is collected as garbage: what is freed then may be a kernel's, which ends a recording."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Steps:
    """What some steps chose, on its way to the host.

    Args:
        steps: how many.
        sums: log-probabilities of the hypotheses that ended at a step (-inf where none did), and of those followed.
        ids: which hypothesis those that ended continue, which those followed, and with which token.
        end_id: of the token that ends a sentence.
    """

    def __init__(self, steps: int, sums: Float[Tensor, "C 2 N W"], ids: Int[Tensor, "C 3 N W"], end_id: int) -> None:
        self.steps, self.end_id = steps, end_id
        is_gpu = sums.device.type == "cuda"
        self._sums, self._ids = (
            torch.empty(each[:steps].shape, dtype=each.dtype, pin_memory=is_gpu, device="cpu") for each in (sums, ids)
        )
        self._sums.copy_(sums[:steps], non_blocking=is_gpu)
        self._ids.copy_(ids[:steps], non_blocking=is_gpu)
        self._arrived = torch.cuda.Event() if is_gpu else None
        if self._arrived is not None:
            self._arrived.record()

    def __iter__(self) -> Iterator[tuple[Candidates, Candidates]]:
        """The best candidates of each step, of which those ended that have a value, and those that were followed."""
        if self._arrived is not None:
            self._arrived.synchronize()
        for sums, ids in zip(self._sums, self._ids.long(), strict=True):
            ended = torch.full_like(ids[0], self.end_id)
            yield Candidates(sums[0], sums[0], ids[0], ended), Candidates(sums[1], sums[1], ids[1], ids[2])


def _on_host(table: BeamState, n: int) -> BeamState:
    """What the host keeps of the first n sentences of a table that was put on a board."""
    scores = table.scores[:n].cpu()
    return replace(
        table, sentences=table.sentences[:n], state=SlotMap(torch.arange(n), scores.size(1)),
        tokens=table.tokens[:n].cpu(), scores=scores, values=scores, written=table.written[:n].cpu(),
    )  # fmt: skip


def _is_bound(request: Request) -> bool:
    """Whether there is more to a request than the model's log-probabilities."""
    return bool(request.prefix or request.required)
