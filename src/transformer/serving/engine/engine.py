"""The engine of the server: distributes jobs over the processes of its models."""

import asyncio
import logging
import math
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from transformer.serving.engine.batching import Shared
from transformer.serving.engine.estimates import Throughput
from transformer.serving.engine.memory import memory_of
from transformer.serving.engine.model import ServedModel
from transformer.serving.engine.queue import PendingRequest, StreamRequest
from transformer.serving.engine.spawner_client import Spawner
from transformer.serving.engine.starting import Settings
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import TASKS, EngineStatus, Job, Metrics, ModelInfo
from transformer.serving.settings import ServerSettings

LOGGER: Final = logging.getLogger("transformer.serving")
MAX_WORKERS: Final = 8
"""Maximum number of workers of a model by default, since each has its own caches."""
MEASURE_SECONDS: Final = 10.0
"""Interval in which the memory of the processes is measured."""
RELOAD_SECONDS: Final = 30.0
"""Interval in which models that have failed are loaded again."""
MAX_RETRY_SECONDS: Final = 60


class ProcessEngine:
    """An `Engine` whose models are loaded by other processes.

    Call `start` before the event loop and any thread, `open` in the loop, and `close` at the end.

    Args:
        settings: Settings of the server.
        metrics: Receives reports of batches and dead workers.
    """

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._spawner = Spawner()
        n_workers = settings.workers or min(len(os.sched_getaffinity(0)), MAX_WORKERS)
        self._shared = Shared(settings, n_workers, self._spawner, metrics, Throughput(), self._model_loaded)
        self._models: dict[str, ServedModel] = {}
        self._requests: set[PendingRequest] = set()
        self._no_work = asyncio.Event()
        self._no_work.set()
        self._background: set[asyncio.Task[None]] = set()
        self._is_open = False

    def start(self) -> None:
        """Starts the process that forks the others, and reads the facts of all models.

        Raises:
            BundleError: A path of the settings does not lead to a model.
            RuntimeError: The process does not answer, or the system is not Linux.
        """
        if sys.platform != "linux":
            raise RuntimeError("the server needs Linux, where processes can be forked safely; use a container")
        try:
            facts = self._spawner.start(list(self._settings.models.values()))
        except BaseException:
            self._spawner.stop()
            raise
        for (name, path), known in zip(self._settings.models.items(), facts, strict=True):
            self._models[name] = ServedModel(name, path, known, self._shared)

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """Models by name, in the order in which they were given."""
        return {name: model.info for name, model in self._models.items()}

    def spawn(self, settings: Settings) -> socket.socket:
        """Starts a process that is not that of a model; see `Spawner.spawn`."""
        return self._spawner.spawn(settings)

    async def open(self) -> None:
        """Joins the running event loop, and begins to load the models if settings ask for it."""
        self._is_open = True
        if self._settings.preload:
            for model in self._models.values():
                model.load()
        self._start(self._repeat(MEASURE_SECONDS, self._measure_memory))
        self._start(self._repeat(RELOAD_SECONDS, self._retry_failed))

    async def run(self, job: Job) -> list[Mapping[str, Any]]:
        """See `Engine.run`."""
        results: list[Mapping[str, Any]] = []
        for result in await self.run_each(job):
            if isinstance(result, Exception):
                raise result
            results.append(result)
        return results

    async def run_each(self, job: Job) -> list[Mapping[str, Any] | Exception]:
        """See `Engine.run_each`."""
        if not job.items:
            return []
        model = self._model_for(job)
        request = PendingRequest(job, self._estimates(model, job))
        try:
            self._submit(model, request)
            async with asyncio.timeout(_seconds_left(job)):
                return list(await request.results())
        except TimeoutError as error:
            raise _timeout() from error
        finally:
            self._finish(model, request)

    async def stream(self, job: Job) -> AsyncGenerator[Mapping[str, Any], None]:
        """See `Engine.stream`."""
        if len(job.items) != 1 or job.task != "generate":
            raise ServiceError("invalid_request", "a stream continues one prompt")
        model = self._model_for(job)
        request = StreamRequest(job, self._estimates(model, job))
        try:
            self._submit(model, request)
            while (part := await asyncio.wait_for(request.parts.get(), _seconds_left(job))) is not None:
                yield part
            (result,) = await request.results()
            if isinstance(result, ServiceError):
                raise result
        except TimeoutError as error:
            raise _timeout() from error
        finally:
            self._finish(model, request)

    def check_capacity(self) -> None:
        """See `Engine.check_capacity`."""
        if not self._is_open:
            raise ServiceError("unavailable", "the server is starting or stopping")
        if self._is_full():
            message = "too many texts are waiting; try again later"
            raise ServiceError("queue_full", message, retry_after=self._seconds_until_accepting())

    def status(self) -> EngineStatus:
        """See `Engine.status`."""
        models = {name: model.status() for name, model in self._models.items()}
        states = {status.state for status in models.values()}
        is_loading = self._settings.preload and "loading" in states
        return EngineStatus(
            ready=self._is_open and not is_loading and not states & {"failed", "stalled"} and not self._is_full(),
            queued_tokens=self._queued_tokens(),
            queued_items=sum(len(model.batcher.queue) for model in self._models.values()),
            models=models,
        )

    async def reload(self) -> None:
        """See `Engine.reload`. One model after another, so that only one is in memory twice."""
        for model in self._models.values():
            await model.reload_if_changed()

    async def drain(self) -> None:
        """See `Engine.drain`."""
        await self._no_work.wait()

    async def close(self) -> None:
        """See `Engine.close`."""
        self._is_open = False
        for task in self._background:
            task.cancel()
        await asyncio.gather(*(model.close() for model in self._models.values()))
        await asyncio.to_thread(self._spawner.stop)

    def _model_for(self, job: Job) -> ServedModel:
        model = self._models.get(job.model)
        if model is None:
            raise ServiceError("not_found", f"model {job.model:.100} does not exist", param="model")
        if job.task not in TASKS[model.info.kind]:
            message = f"model {job.model} is of kind {model.info.kind}, which does not {job.task}"
            raise ServiceError("invalid_request", message, param="model")
        return model

    def _estimates(self, model: ServedModel, job: Job) -> list[int]:
        return [model.batcher.estimator.estimate(job, item, self._settings.beam) for item in job.items]

    def _submit(self, model: ServedModel, request: PendingRequest) -> None:
        self.check_capacity()
        self._requests.add(request)
        self._no_work.clear()
        model.submit(request)

    def _finish(self, model: ServedModel, request: PendingRequest) -> None:
        model.batcher.abandon(request)
        self._requests.discard(request)
        if not self._requests:
            self._no_work.set()

    def _queued_tokens(self) -> int:
        return sum(model.batcher.queue.tokens for model in self._models.values())

    def _is_full(self) -> bool:
        return self._queued_tokens() >= self._settings.limits.queue_tokens

    def _seconds_until_accepting(self) -> int:
        seconds = self._shared.throughput.seconds(self._queued_tokens(), self._shared.n_workers)
        return max(1, min(math.ceil(seconds / 2), MAX_RETRY_SECONDS))

    def _model_loaded(self) -> None:
        self._start(self._measure_memory())

    async def _measure_memory(self) -> None:
        """Measures the memory of all models; unloads idle ones, least recently used first, while it is too much.

        The model that was used last stays, since it would only be loaded again.
        """
        for model in self._models.values():
            model.memory = await asyncio.to_thread(memory_of, model.pids)
        limit = self._settings.memory_mb * 10**6
        *others, _ = sorted(self._models.values(), key=lambda model: model.last_used)
        for model in others:
            if limit and model.is_idle and sum(model.memory for model in self._models.values()) > limit:
                LOGGER.info("model %s is unloaded, since the memory limit is exceeded", model.info.name)
                model.unload()

    async def _retry_failed(self) -> None:
        for model in self._models.values():
            model.retry()

    async def _repeat(self, seconds: float, action: Any) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await action()
            except Exception:
                LOGGER.exception("a periodic task of the engine failed; it is tried again")

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _seconds_left(job: Job) -> float | None:
    return None if job.deadline is None else max(0.0, job.deadline - time.monotonic())


def _timeout() -> ServiceError:
    return ServiceError("timeout", "the texts were not processed in time; send fewer, or try again later")
