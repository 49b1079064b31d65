"""A model of the server: its process, which is started, replaced and ended."""

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from transformer.errors import BundleError
from transformer.runtime.pool import MAX_ATTEMPTS
from transformer.serving.engine.batching import Batcher, Shared
from transformer.serving.engine.process import ModelProcess, ProcessEndedError
from transformer.serving.engine.queue import PendingRequest
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import ModelInfo, ModelStatus

LOGGER: Final = logging.getLogger("transformer.serving")
RETRY_SECONDS: Final = 10.0
"""Time after a failure to load a model in which requests get the same error at once."""
MAX_WORKER_LOSSES: Final = 4
"""Number of workers that may end one after the other before a batch is finished; then the model is loaded again."""


class ServedModel:
    """A model that is loaded at the first request, and its waiting requests.

    Args:
        name: Name for clients.
        path: Folder or name of an installed model.
        facts: Facts of the model, see `describe`.
        shared: What all models of the engine share.

    Attributes:
        info: Facts of the model for clients.
        batcher: Its waiting items.
        last_used: Value of `time.monotonic()` at the last request.
        memory: Memory that its processes use, in bytes, as last measured.
    """

    def __init__(self, name: str, path: str, facts: Mapping[str, Any], shared: Shared) -> None:
        self._path, self._shared = path, shared
        self.info = _model_info(name, facts)
        self.batcher = Batcher(name, shared, self.load)
        self.last_used = time.monotonic()
        self.memory = 0
        self._process: ModelProcess | None = None
        self._processes: set[ModelProcess] = set()
        self._loading: asyncio.Task[None] | None = None
        self._loaded = self._tried = ""  # fingerprints of the folder that was loaded, and that was tried last
        self._n_losses = self._n_worker_losses = self._n_finished = 0  # ends of processes since so many batches
        self._problem, self._failed_at = "", -math.inf
        self._is_closed = False

    def status(self) -> ModelStatus:
        """Returns the state of the model."""
        if self._process is not None:
            n_workers = len(self._process.workers)
            if seconds := self.batcher.stalled_seconds(time.monotonic()):
                problem = f"no worker has answered for {seconds:.0f} s"
                return ModelStatus("stalled", self.memory, n_workers, problem)
            return ModelStatus("ready", self.memory, n_workers, self._problem)
        if self._problem:
            return ModelStatus("failed", 0, 0, self._problem)
        return ModelStatus("unloaded" if self._loading is None else "loading", self.memory)

    @property
    def is_idle(self) -> bool:
        """Whether the model is loaded, and neither has nor gets work."""
        process = self._process
        return process is not None and self._loading is None and not len(self.batcher.queue) and not process.is_busy

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
        self.batcher.add(request)
        self.load()

    def load(self, *, again: bool = False) -> None:
        """Begins to load the model, unless it is loaded or being loaded.

        Args:
            again: Whether a loaded model is loaded again, and replaced once that has succeeded.
        """
        if self._loading is None and not self._is_closed and (again or self._process is None):
            self._loading = asyncio.create_task(self._load())

    def unload(self) -> None:
        """Ends the processes of an idle model; the next request loads it again."""
        if self._process is not None:
            self._process.retire()
            self.memory = 0
            self._set_process(None)

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
            self._tried = facts["fingerprint"]
            self.info, self._problem, self._failed_at = _model_info(self.info.name, facts), "", -math.inf
        elif facts["fingerprint"] != self._tried:
            self._tried = facts["fingerprint"]
            self.load(again=True)
            await asyncio.wait([task for task in [self._loading] if task is not None])

    def retry(self) -> None:
        """Begins to load a model again that has failed: its folder may be whole by now, or memory free."""
        if self._process is None and self._problem:
            self.load()

    async def close(self) -> None:
        """Ends all processes; requests fail."""
        self._is_closed = True
        if self._loading is not None:
            self._loading.cancel()
        ending = [self.batcher.close(), *(process.close() for process in self._processes)]
        await asyncio.gather(*ending, return_exceptions=True)
        self._set_process(None)

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
                on_idle=self.batcher.dispatch_soon,
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
        old = self._process
        self._loaded = self._tried = facts["fingerprint"]
        self._problem, self._failed_at = "", -math.inf
        self.info = _model_info(self.info.name, facts)
        if old is not None:
            old.retire()
        LOGGER.info("model %s is loaded", self.info.name)
        self._shared.on_loaded()
        self._set_process(process)

    def _set_process(self, process: ModelProcess | None) -> None:
        self._process = process
        self.batcher.set_process(process)

    def _load_failed(self, problem: str) -> None:
        if problem != self._problem:
            LOGGER.error("model %s cannot be loaded: %s", self.info.name, problem)
        self._problem, self._failed_at = problem, time.monotonic()
        if self._process is None:
            self.batcher.fail_waiting(self._unavailable(RETRY_SECONDS))

    def _unavailable(self, wait: float) -> ServiceError:
        message = f"model {self.info.name} cannot be loaded: {self._problem}"
        return ServiceError("unavailable", message, retry_after=math.ceil(wait))

    def _worker_lost(self) -> None:
        LOGGER.error("a worker of model %s ended; another one is started", self.info.name)
        self._shared.metrics.worker_died(self.info.name)
        self._forget_losses_before_last_batch()
        self._n_worker_losses += 1
        if self._n_worker_losses >= MAX_WORKER_LOSSES and self._process is not None:
            self._process.kill()

    def _forget_losses_before_last_batch(self) -> None:
        if self.batcher.n_finished > self._n_finished:
            self._n_losses, self._n_worker_losses, self._n_finished = 0, 0, self.batcher.n_finished

    def _process_lost(self, process: ModelProcess) -> None:
        if process is self._process:
            LOGGER.error("the process of model %s ended", self.info.name)
            self._set_process(None)
            self._forget_losses_before_last_batch()
            self._n_losses += 1
            self._n_worker_losses = 0
            if self._n_losses < MAX_ATTEMPTS:
                self.load()
            else:
                self._load_failed("its processes end before they have finished a batch")


def _model_info(name: str, facts: Mapping[str, Any]) -> ModelInfo:
    known = {field.name for field in fields(ModelInfo)}
    directions = tuple((source, target) for source, target in facts.get("directions", ()))  # lists in JSON
    info = ModelInfo(name=name, **{key: value for key, value in facts.items() if key in known})
    return replace(info, directions=directions)
