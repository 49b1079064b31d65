"""A model of the server: its waiting items, its process, and the batches that its workers get."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from transformer.errors import BundleError
from transformer.serving.engine.estimates import Gathering, Throughput, TokenEstimator
from transformer.serving.engine.process import Answer, ModelProcess, ProcessEndedError
from transformer.serving.engine.queue import MAX_ATTEMPTS, Batch, FairQueue, PendingRequest, Result, StreamRequest, Unit
from transformer.serving.engine.spawner_client import Spawner
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Metrics, ModelInfo, ModelStatus
from transformer.serving.settings import ServerSettings

LOGGER: Final = logging.getLogger("transformer.serving")
RETRY_SECONDS: Final = 10.0
"""Time after a failure to load a model in which requests get the same error at once."""


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


class ServedModel:
    """A model that is loaded at the first request, and its waiting requests.

    Args:
        name: Name for clients.
        path: Folder or name of an installed model.
        facts: Facts of the model, see `describe`.
        shared: What all models of the engine share.

    Attributes:
        info: Facts of the model for clients.
        queue: Waiting items.
        estimator: Estimates the number of tokens of texts.
        last_used: Value of `time.monotonic()` at the last request.
        memory: Memory that its processes use, in bytes, as last measured.
    """

    def __init__(self, name: str, path: str, facts: Mapping[str, Any], shared: Shared) -> None:
        self._path, self._shared = path, shared
        self.info = _model_info(name, facts)
        self.queue = FairQueue()
        self.estimator = TokenEstimator()
        self.last_used = time.monotonic()
        self.memory = 0
        self._process: ModelProcess | None = None
        self._processes: set[ModelProcess] = set()
        self._loading: asyncio.Task[None] | None = None
        self._loaded = self._tried = ""  # fingerprints of the folder that was loaded, and that was tried last
        self._n_losses = 0  # processes that have ended since the last finished batch
        self._problem, self._failed_at = "", -math.inf
        self._is_dispatching = self._is_closed = False
        self._gathering = Gathering()
        self._gathering_timer: asyncio.TimerHandle | None = None
        self._streaming: dict[PendingRequest, Answer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def status(self) -> ModelStatus:
        """Returns the state of the model."""
        if self._process is not None:
            return ModelStatus("ready", self.memory, len(self._process.workers), self._problem)
        if self._loading is not None:
            return ModelStatus("loading", self.memory, 0, self._problem)
        return ModelStatus("failed" if self._problem else "unloaded", 0, 0, self._problem)

    @property
    def is_idle(self) -> bool:
        """Whether the model is loaded, and neither has nor gets work."""
        process = self._process
        return process is not None and self._loading is None and not len(self.queue) and not process.is_busy

    @property
    def pids(self) -> list[int]:
        """Ids of all its processes."""
        return [pid for process in self._processes for pid in process.pids]

    def submit(self, request: PendingRequest) -> None:
        """Adds a request, and loads the model if necessary.

        Raises:
            ServiceError: The model could not be loaded a moment ago.
        """
        self.last_used = time.monotonic()
        if self._process is None and self._loading is None:
            wait = self._failed_at + RETRY_SECONDS - self.last_used
            if wait > 0:
                raise self._unavailable(wait)
        self.queue.add(request)
        self.load()
        self._dispatch_soon()

    def abandon(self, request: PendingRequest) -> None:
        """Drops the waiting items of a request, and stops the worker of its stream."""
        if not request.is_done:
            self.queue.discard(request)
        request.abandon()
        if request in self._streaming:
            self._streaming[request].cancel()

    def load(self, *, again: bool = False) -> None:
        """Begins to load the model, unless it is loaded or being loaded.

        Args:
            again: Whether a loaded model is loaded again, and replaced once that has succeeded.
        """
        if self._loading is None and not self._is_closed and (again or self._process is None):
            self._loading = self._start(self._load())

    def unload(self) -> None:
        """Ends the processes of an idle model; the next request loads it again."""
        if self._process is not None:
            self._process.retire()
            self._process, self.memory = None, 0

    async def reload_if_changed(self) -> None:
        """Loads a model again whose folder has changed, and waits until it is loaded; requests go to the old one."""
        if self._loading is not None:
            await asyncio.wait([self._loading])
        try:
            facts = await self._shared.spawner.describe(self._path)
        except (BundleError, ProcessEndedError) as error:
            self._problem = str(error)
            return
        if facts["fingerprint"] == (self._tried if self._process is None else self._loaded):
            self._problem = self._problem if self._process is None else ""
        elif self._process is None:
            self.info, self._problem, self._failed_at = _model_info(self.info.name, facts), "", -math.inf
        elif facts["fingerprint"] != self._tried:
            self._tried = facts["fingerprint"]
            self.load(again=True)
            await asyncio.wait([task for task in [self._loading] if task is not None])

    async def close(self) -> None:
        """Ends all processes; waiting requests fail."""
        self._is_closed = True
        self._fail_waiting(_stopping())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *(process.close() for process in self._processes), return_exceptions=True)
        self._process = None

    async def _load(self) -> None:
        try:
            self._switch_to(await self._start_process())
        except (BundleError, ProcessEndedError) as error:
            self._load_failed(str(error))
        except Exception as error:
            LOGGER.exception("model %s cannot be loaded", self.info.name)
            self._load_failed(f"{type(error).__name__} while it was loaded; the log says where")
        finally:
            self._loading = None

    async def _start_process(self) -> ModelProcess:
        """Returns a process that has loaded the model; one that dies meanwhile is tried once more.

        Raises:
            BundleError: The model cannot be loaded.
            ProcessEndedError: Its process died twice.
        """
        settings = self._shared.settings
        message = {
            "path": self._path,
            "precision": settings.precision,
            "device": settings.device,
            "deterministic": settings.deterministic,
            "workers": self._shared.n_workers,
        }
        for attempt in range(1, MAX_ATTEMPTS + 1):
            process = await ModelProcess.connect(
                self._shared.spawner.spawn(message),
                on_idle=self._dispatch_soon,
                on_worker_lost=self._worker_lost,
                on_lost=self._process_lost,
                on_ended=self._processes.discard,
            )
            self._processes.add(process)
            try:
                await process.facts
            except ProcessEndedError:
                if attempt == MAX_ATTEMPTS:
                    raise
            else:
                return process
        raise AssertionError("unreachable")

    def _switch_to(self, process: ModelProcess) -> None:
        facts = process.facts.result()
        old, self._process = self._process, process
        self._loaded = self._tried = facts["fingerprint"]
        self._problem, self._failed_at = "", -math.inf
        self.info = _model_info(self.info.name, facts)
        if old is not None:
            old.retire()
        LOGGER.info("model %s is loaded", self.info.name)
        self._shared.on_loaded()
        self._dispatch_soon()

    def _load_failed(self, problem: str) -> None:
        LOGGER.error("model %s cannot be loaded: %s", self.info.name, problem)
        self._problem, self._failed_at = problem, time.monotonic()
        if self._process is None:
            self._fail_waiting(self._unavailable(RETRY_SECONDS))

    def _unavailable(self, wait: float) -> ServiceError:
        message = f"model {self.info.name} cannot be loaded: {self._problem}"
        return ServiceError("unavailable", message, retry_after=math.ceil(wait))

    def _fail_waiting(self, error: ServiceError) -> None:
        for request in self.queue.requests():
            self.queue.discard(request)
            request.fail(error)

    def _worker_lost(self) -> None:
        LOGGER.error("a worker of model %s ended; another one is started", self.info.name)
        self._shared.metrics.worker_died(self.info.name)

    def _process_lost(self, process: ModelProcess) -> None:
        if process is self._process:
            LOGGER.error("the process of model %s ended", self.info.name)
            self._process = None
            self._n_losses += 1
            if self._n_losses < MAX_ATTEMPTS:
                self.load()
            else:
                self._load_failed("its processes end before they have finished a batch")

    def _dispatch_soon(self) -> None:
        """Gives batches to idle workers once the event loop has handled what has arrived by now."""
        if not self._is_dispatching:
            self._is_dispatching = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_dispatching = False
        process = self._process
        if process is None or self._gathers():
            return
        try:
            while (n_idle := process.n_idle) and len(self.queue):
                share = math.ceil(self.queue.tokens / n_idle)
                batch = self.queue.take(min(share, self._shared.settings.batch_tokens))
                self._start(self._run(process.request(batch.to_message()), batch))
        except Exception:
            LOGGER.exception("the batches of model %s cannot be made; its waiting requests fail", self.info.name)
            requests, self.queue = self.queue.requests(), FairQueue()
            for request in requests:
                request.fail(_internal_error())

    def _gathers(self) -> bool:
        """Returns whether the next batch is made a moment later, see `Gathering`."""
        if self._gathering_timer is not None:
            self._gathering_timer.cancel()
            self._gathering_timer = None
        seconds = self._gathering.seconds_left(len(self.queue), time.monotonic())
        if seconds > 0:
            self._gathering_timer = asyncio.get_running_loop().call_later(seconds, self._dispatch_soon)
        return seconds > 0

    async def _run(self, answer: Answer, batch: Batch) -> None:
        """Waits for the results of a batch; whatever happens, its requests get answers and its worker a next batch."""
        start = time.monotonic()
        try:
            for unit in batch.units:
                unit.attempts += 1
                self._shared.metrics.waited(self.info.name, start - unit.added)
            async with asyncio.timeout(self._shared.settings.limits.request_seconds):
                await self._receive(answer, batch)
            self._n_losses = 0
            self._record(batch, time.monotonic() - start)
        except ProcessEndedError:
            self._try_again(batch)
        except TimeoutError:
            LOGGER.error("a worker of model %s does not answer; it is killed", self.info.name)
            answer.kill()
            _fail_units(batch.units, ServiceError("timeout", "the text was not processed in time"))
        except asyncio.CancelledError:
            _fail_units(batch.units, _stopping())
            raise
        except Exception:
            LOGGER.exception("a batch of model %s failed", self.info.name)
            answer.kill()
            _fail_units(batch.units, _internal_error())

    async def _receive(self, answer: Answer, batch: Batch) -> None:
        if isinstance(request := batch.units[0].request, StreamRequest):
            await self._receive_parts(answer, request, batch.units[0])
        else:
            self._set_results(batch, await answer.next())

    async def _receive_parts(self, answer: Answer, request: StreamRequest, unit: Unit) -> None:
        self._streaming[request] = answer
        if request.is_done:  # it was abandoned before its answer was known
            answer.cancel()
        try:
            while "part" in (part := await answer.next()):
                request.add_part(part["part"])
        finally:
            del self._streaming[request]
        request.set_result(unit, _result(part))

    def _set_results(self, batch: Batch, answer: Mapping[str, Any]) -> None:
        if "error" in answer:
            _fail_units(batch.units, _result(answer))
            return
        for unit, result in zip(batch.units, answer["results"], strict=True):
            job = unit.request.job
            self.estimator.learn(job.task, job.items[unit.index], result)
            unit.request.set_result(unit, _result(result))

    def _record(self, batch: Batch, seconds: float) -> None:
        n_tokens = sum(unit.tokens for unit in batch.units)
        self._shared.throughput.add(n_tokens, seconds)
        self._shared.metrics.batch(self.info.name, len(batch.units), n_tokens, seconds)
        self._gathering.batch_ended(len(batch.units), seconds, time.monotonic())

    def _try_again(self, batch: Batch) -> None:
        """Puts the items of a dead worker back into the queue, except those that were tried before."""
        units = [unit for unit in batch.units if not unit.request.is_done]
        begun = [unit for unit in units if isinstance(unit.request, StreamRequest) and unit.request.has_begun]
        again = [unit for unit in units if unit.attempts < MAX_ATTEMPTS and unit not in begun and not self._is_closed]
        error = ServiceError("internal", "the process that worked on the text ended; the text may need too much memory")
        _fail_units([unit for unit in units if unit not in again], error)
        self.queue.add_again(again)
        if again:
            self.load()
            self._dispatch_soon()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _model_info(name: str, facts: Mapping[str, Any]) -> ModelInfo:
    known = {field.name for field in fields(ModelInfo)}
    return ModelInfo(name=name, **{key: value for key, value in facts.items() if key in known})


def _result(answer: Mapping[str, Any]) -> Result:
    """Returns a result, or the error that a worker reports in its place."""
    error = answer.get("error")
    if error is None:
        return answer
    return ServiceError(error["code"], error["message"], param=error["param"])


def _fail_units(units: list[Unit], error: Result) -> None:
    for unit in units:
        unit.request.set_result(unit, error)


def _stopping() -> ServiceError:
    return ServiceError("unavailable", "the server is stopping")


def _internal_error() -> ServiceError:
    return ServiceError("internal", "the server failed to process the text; its log says why")
