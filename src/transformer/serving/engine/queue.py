"""The waiting items of a model, from which batches are taken."""

import asyncio
import json
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Job

Result = Mapping[str, Any] | ServiceError
BatchKey = tuple[str, str, int]
"""Task and canonical JSON of the options, and the number of a stream, which is a batch of its own."""
_numbers = count()


@dataclass(eq=False)
class QueuedItem:
    """A waiting item.

    Attributes:
        request: Request that it belongs to.
        index: Position in the request.
        tokens: Estimated number of tokens.
        number: Rank in the order of arrival.
        added: Value of `time.monotonic()` when it was added.
        attempts: Number of workers that it was given to.
        rank: Rank in the order of its client, before its number, see `FairQueue`.
    """

    request: "PendingRequest"
    index: int
    tokens: int
    number: int = field(default_factory=lambda: next(_numbers))
    added: float = field(default_factory=time.monotonic)
    attempts: int = 0
    rank: float = 0.0

    def __lt__(self, other: "QueuedItem") -> bool:
        return (self.rank, self.number) < (other.rank, other.number)


class PendingRequest:
    """A job whose results are awaited.

    Args:
        job: The job.
        tokens: Estimated number of tokens of each item.

    Attributes:
        items: The items.
        key: Key of the batches that its items can join.
    """

    def __init__(self, job: Job, tokens: Sequence[int]) -> None:
        self.job = job
        self.key: BatchKey = job.task, json.dumps(dict(job.options), sort_keys=True), 0
        self.items = [QueuedItem(self, index, estimate) for index, estimate in enumerate(tokens)]
        self._results: dict[int, Result] = {}
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_done(self) -> bool:
        """Whether nothing waits for further results."""
        return self._done.done()

    def set_result(self, item: QueuedItem, result: Result) -> None:
        """Sets the result of an item; later results of the same item are ignored."""
        self._results.setdefault(item.index, result)
        if len(self._results) == len(self.items) and not self.is_done:
            self._done.set_result(None)

    def fail(self, error: ServiceError) -> None:
        """Fails the whole request."""
        if not self.is_done:
            self._done.set_exception(error)

    def abandon(self) -> None:
        """Cancels the request."""
        if not self._done.cancel() and not self._done.cancelled():
            self._done.exception()  # otherwise it is logged as one that was never seen

    async def results(self) -> list[Result]:
        """Waits for the results of all items.

        Raises:
            ServiceError: The whole request failed.
        """
        await asyncio.shield(self._done)  # a caller that is cancelled does not make the request done
        return [self._results[index] for index in range(len(self.items))]


class StreamRequest(PendingRequest):
    """A job of one item whose result is awaited part by part.

    Attributes:
        parts: Parts, and None at the end; then `results` raises if the stream failed.
        has_begun: Whether there was a part, after which the item cannot be tried again.
    """

    def __init__(self, job: Job, tokens: Sequence[int]) -> None:
        super().__init__(job, tokens)
        self.key = *self.key[:2], self.items[0].number + 1
        self.parts: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self.has_begun = False
        self._done.add_done_callback(lambda _: self.parts.put_nowait(None))

    def add_part(self, part: Mapping[str, Any]) -> None:
        """Adds a part of the result."""
        self.has_begun = True
        self.parts.put_nowait(part)


@dataclass(eq=False)
class Batch:
    """Items that a worker gets together.

    Attributes:
        items: The items, at least one; all have the same task and options.
    """

    items: list[QueuedItem]

    @property
    def job(self) -> Job:
        """Job of the first item, whose task and options are those of the batch."""
        return self.items[0].request.job

    def to_message(self) -> dict[str, Any]:
        """Returns the request to a worker, which `model_process.run` describes."""
        is_stream = isinstance(self.items[0].request, StreamRequest)
        items = [vars(item.request.job.items[item.index]) for item in self.items]
        return {"task": self.job.task, "items": items, "options": dict(self.job.options), "is_stream": is_stream}


@dataclass(eq=False)
class _Client:
    """Waiting items of a client.

    Attributes:
        waiting: Heaps of items by the key of their batch, none of them empty.
        n_waiting: Number of waiting items of each request.
        n_taken: Estimated number of tokens that each request would have got by now at equal speed.
    """

    waiting: dict[BatchKey, list[QueuedItem]] = field(default_factory=dict[BatchKey, list[QueuedItem]])
    n_waiting: Counter["PendingRequest"] = field(default_factory=Counter["PendingRequest"])
    n_taken: float = 0.0


class FairQueue:
    """Fair queue: waiting items, taken round robin from the clients.

    The requests of a client are served in the order in which they would end if all that it asks for were done at once
    at equal speed: a short request passes long ones, and a long one waits for no more than its own length.

    Attributes:
        tokens: Estimated number of tokens of all items.
        n_items: Number of items.
    """

    def __init__(self) -> None:
        self.tokens = self.n_items = 0
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self._retries: deque[QueuedItem] = deque()

    def __len__(self) -> int:
        return self.n_items

    def add(self, request: PendingRequest) -> None:
        """Adds all items of a request."""
        client = self._clients.setdefault(request.job.client, _Client())
        waiting = client.waiting.setdefault(request.key, [])
        client.n_waiting[request] = len(request.items)
        rank = client.n_taken + sum(item.tokens for item in request.items)
        for item in request.items:
            item.rank = rank
            heappush(waiting, item)
        self._add_to_totals(request.items, 1)

    def requeue(self, items: Iterable[QueuedItem]) -> None:
        """Requeues items whose worker died, first and each in its own batch, since one may be the cause."""
        items = list(items)
        self._retries.extend(items)
        self._add_to_totals(items, 1)

    def discard(self, request: PendingRequest) -> None:
        """Removes the items of a request that still wait."""
        name = request.job.client
        self._retries = deque(self._without(self._retries, request))
        client = self._clients.get(name)
        if client and request.key in client.waiting:
            client.waiting[request.key] = self._without(client.waiting[request.key], request)
            heapify(client.waiting[request.key])
            del client.n_waiting[request]
            self._remove_if_empty(name, request.key)

    def requests(self) -> set[PendingRequest]:
        """Returns the requests that have waiting items."""
        waiting = [item for client in self._clients.values() for items in client.waiting.values() for item in items]
        return {item.request for item in (*self._retries, *waiting)}

    def take(self, max_tokens: int) -> Batch:
        """Takes a batch of items with equal task and options; at least one must wait.

        The client whose turn it is determines task and options by its first item. Then one item is taken from each
        client in turn.

        Args:
            max_tokens: Maximum number of estimated tokens; a single item may exceed it.
        """
        if self._retries:
            items = [self._retries.popleft()]
        else:
            waiting = next(iter(self._clients.values())).waiting
            key = min(waiting, key=lambda key: waiting[key][0])
            items = list(self._take_in_turn(key, max_tokens))
        self._add_to_totals(items, -1)
        return Batch(items)

    def _take_in_turn(self, key: BatchKey, max_tokens: int) -> Iterator[QueuedItem]:
        n_tokens, n_taken = 0, 0
        while names := [name for name, client in self._clients.items() if key in client.waiting]:
            for name in names:
                client = self._clients[name]
                waiting = client.waiting[key]
                if n_taken and n_tokens + waiting[0].tokens > max_tokens:
                    return
                item = heappop(waiting)
                n_tokens, n_taken = n_tokens + item.tokens, n_taken + 1
                client.n_taken += item.tokens / len(client.n_waiting)
                client.n_waiting[item.request] -= 1
                if not client.n_waiting[item.request]:
                    del client.n_waiting[item.request]
                self._clients.move_to_end(name)
                self._remove_if_empty(name, key)
                yield item

    def _remove_if_empty(self, name: str, key: BatchKey) -> None:
        waiting = self._clients[name].waiting
        if not waiting[key]:
            del waiting[key]
        if not waiting:
            del self._clients[name]

    def _without(self, items: Iterable[QueuedItem], request: PendingRequest) -> list[QueuedItem]:
        self._add_to_totals([item for item in items if item.request is request], -1)
        return [item for item in items if item.request is not request]

    def _add_to_totals(self, items: Iterable[QueuedItem], sign: int) -> None:
        for item in items:
            self.tokens += sign * item.tokens
            self.n_items += sign
