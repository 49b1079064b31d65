"""Dynamic batching: the waiting items of a model go to its workers in batches."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from transformer.runtime.pool import MAX_ATTEMPTS
from transformer.serving.engine.estimates import BatchingDelay, Throughput, TokenEstimator
from transformer.serving.engine.process import Answer, Message, ModelProcess, ProcessEndedError
from transformer.serving.engine.queue import Batch, FairQueue, PendingRequest, QueuedItem, Result, StreamRequest
from transformer.serving.engine.spawner_client import Spawner
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Metrics
from transformer.serving.settings import ServerSettings

LOGGER: Final = logging.getLogger("transformer.serving")
STALL_SECONDS: Final = 60.0
"""Time after which workers that all have work, and of which none has sent anything, count as stalled."""


@dataclass(frozen=True)
class Shared:
    """Objects and settings that all models of an engine share.

    Attributes:
        settings: Settings of the server.
        n_workers: Number of workers of a model on a CPU.
        spawner: Starts processes of models.
        metrics: Receives reports of batches and dead workers.
        throughput: Rate of finished work.
        on_loaded: Function to call when a model has been loaded.
    """

    settings: ServerSettings
    n_workers: int
    spawner: Spawner
    metrics: Metrics
    throughput: Throughput
    on_loaded: Callable[[], None]


class Batcher:
    """Sends the waiting items of a model to its process in batches, and the results to their requests.

    Args:
        name: Name of the model.
        shared: What all models of the engine share.
        need_process: Function to call when items wait that were given to a process that has died.

    Attributes:
        queue: Waiting items.
        estimator: Estimates the number of tokens of texts.
        n_finished: Number of finished batches.
        last_active: Value of `time.monotonic()` when a worker last got work or sent anything.
    """

    def __init__(self, name: str, shared: Shared, need_process: Callable[[], None]) -> None:
        self._name, self._shared, self._need_process = name, shared, need_process
        self.queue = FairQueue()
        self.estimator = TokenEstimator()
        self.n_finished = 0
        self.last_active = time.monotonic()
        self._process: ModelProcess | None = None
        self._is_dispatching = self._is_closed = False
        self._delay = BatchingDelay()
        self._delay_timer: asyncio.TimerHandle | None = None
        self._streaming: dict[PendingRequest, Answer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, request: PendingRequest) -> None:
        """Adds the items of a request."""
        self.queue.add(request)
        self.dispatch_soon()

    def abandon(self, request: PendingRequest) -> None:
        """Drops the waiting items of a request, and ends its stream."""
        if not request.is_done:
            self.queue.discard(request)
        request.abandon()
        if request in self._streaming:
            self._streaming[request].cancel()

    def set_process(self, process: ModelProcess | None) -> None:
        """Sets the process that gets further batches; None keeps them waiting."""
        self._process = process
        self.dispatch_soon()

    def fail_waiting(self, error: ServiceError) -> None:
        """Fails all waiting requests."""
        for request in self.queue.requests():
            self.queue.discard(request)
            request.fail(error)

    def stalled_seconds(self, now: float) -> float:
        """Returns for how long no worker has answered although there is work and none is idle; 0 up to `STALL_SECONDS`.

        Args:
            now: Value of `time.monotonic()`.
        """
        process, seconds = self._process, now - self.last_active
        if process is None or process.n_idle or not (process.is_busy or len(self.queue)):
            return 0.0
        return seconds if seconds > STALL_SECONDS else 0.0

    async def close(self) -> None:
        """Fails all requests."""
        self._is_closed = True
        self.fail_waiting(_stopping())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def dispatch_soon(self) -> None:
        """Dispatches batches to idle workers once the event loop has handled what has arrived by now."""
        if not self._is_dispatching:
            self._is_dispatching = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_dispatching = False
        process = self._process
        if process is None or self._delays_batch():
            return
        try:
            while (n_idle := process.n_idle) and len(self.queue):
                share = math.ceil(self.queue.tokens / n_idle)
                batch = self.queue.take(min(share, self._shared.settings.batch_tokens))
                self._start(self._run(process.request(batch.to_message()), batch))
        except Exception:
            LOGGER.exception("the batches of model %s cannot be made; its waiting requests fail", self._name)
            requests, self.queue = self.queue.requests(), FairQueue()
            for request in requests:
                request.fail(_internal_error())

    def _delays_batch(self) -> bool:
        """Whether the next batch has to wait, see `BatchingDelay`."""
        if self._delay_timer is not None:
            self._delay_timer.cancel()
            self._delay_timer = None
        seconds = self._delay.seconds_left(len(self.queue), time.monotonic())
        if seconds > 0:
            self._delay_timer = asyncio.get_running_loop().call_later(seconds, self.dispatch_soon)
        return seconds > 0

    async def _run(self, answer: Answer, batch: Batch) -> None:
        """Waits for the results of a batch; its requests get an answer in any case."""
        start = self.last_active = time.monotonic()
        try:
            for item in batch.items:
                item.attempts += 1
                self._shared.metrics.observe_queue_time(self._name, start - item.added)
            async with asyncio.timeout(self._shared.settings.limits.request_seconds):
                await self._receive(answer, batch)
            self.n_finished += 1
            self._record(batch, time.monotonic() - start)
        except ProcessEndedError:
            self._retry(batch)
        except TimeoutError:
            LOGGER.error("a worker of model %s does not answer; it is killed", self._name)
            answer.kill()
            _fail_items(batch.items, ServiceError("timeout", "the text was not processed in time"))
        except asyncio.CancelledError:
            _fail_items(batch.items, _stopping())
            raise
        except Exception:
            LOGGER.exception("a batch of model %s failed", self._name)
            answer.kill()
            _fail_items(batch.items, _internal_error())

    async def _receive(self, answer: Answer, batch: Batch) -> None:
        if isinstance(request := batch.items[0].request, StreamRequest):
            await self._receive_parts(answer, request, batch.items[0])
            return
        while "part" in (part := await self._next_part(answer)):
            self._set_results([(batch.items[place], result) for place, result in part["part"]])
        if "error" in part:
            _fail_items(batch.items, _result(part))
        else:
            results = zip(batch.items, part["results"], strict=True)
            self._set_results([(item, result) for item, result in results if result is not None])

    async def _next_part(self, answer: Answer) -> Message:
        part = await answer.next()
        self.last_active = time.monotonic()
        return part

    async def _receive_parts(self, answer: Answer, request: StreamRequest, item: QueuedItem) -> None:
        self._streaming[request] = answer
        if request.is_done:  # it was abandoned before its answer was known
            answer.cancel()
        try:
            while "part" in (part := await self._next_part(answer)):
                request.add_part(part["part"])
        finally:
            del self._streaming[request]
        request.set_result(item, _result(part))

    def _set_results(self, results: Iterable[tuple[QueuedItem, Mapping[str, Any]]]) -> None:
        for item, result in results:
            job = item.request.job
            self.estimator.learn(job.task, job.items[item.index], result)
            item.request.set_result(item, _result(result))

    def _record(self, batch: Batch, seconds: float) -> None:
        n_tokens = sum(item.tokens for item in batch.items)
        self._shared.throughput.add(n_tokens, seconds)
        self._shared.metrics.observe_batch(self._name, len(batch.items), n_tokens, seconds)
        self._delay.batch_ended(len(batch.items), seconds, time.monotonic())

    def _retry(self, batch: Batch) -> None:
        """Requeues the items of a worker that died, except those that have been tried often enough."""
        items = [item for item in batch.items if not item.request.is_done]
        begun = [item for item in items if isinstance(item.request, StreamRequest) and item.request.has_begun]
        again = [item for item in items if item.attempts < MAX_ATTEMPTS and item not in begun and not self._is_closed]
        error = ServiceError("internal", "the process that worked on the text ended; the text may need too much memory")
        _fail_items([item for item in items if item not in again], error)
        self.queue.requeue(again)
        if again:
            self._need_process()
            self.dispatch_soon()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _result(answer: Mapping[str, Any]) -> Result:
    """Returns a result, or the error that a worker reports in its place."""
    error = answer.get("error")
    if error is None:
        return answer
    return ServiceError(error["code"], error["message"], param=error["param"])


def _fail_items(items: list[QueuedItem], error: Result) -> None:
    for item in items:
        item.request.set_result(item, error)


def _stopping() -> ServiceError:
    return ServiceError("unavailable", "the server is stopping")


def _internal_error() -> ServiceError:
    return ServiceError("internal", "the server failed to process the text; its log says why")
