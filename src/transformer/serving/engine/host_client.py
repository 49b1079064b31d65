"""The server's connections to hosts and workers."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from transformer.errors import BundleError
from transformer.serving.engine.messages import Decoder, Message, encode, receive_control, send_control

LOGGER: Final = logging.getLogger("transformer.serving")
END_SECONDS: Final = 5
"""Maximum time that a process has to end before it is killed."""


class ProcessEndedError(Exception):
    """A process of the engine has ended."""


class Worker(asyncio.Protocol):
    """A connection to a worker.

    Args:
        pid: Id of the process.
        on_lost: Function to call when the process has ended.

    Attributes:
        pid: Id of the process.
        n_batches: Number of batches that it has finished.
        is_closing: Whether it gets no more batches.
    """

    def __init__(self, pid: int, on_lost: Callable[["Worker"], None]) -> None:
        self.pid, self.n_batches, self.is_closing = pid, 0, False
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._decoder = Decoder()
        self._answers: asyncio.Queue[Message | None] = asyncio.Queue()

    @property
    def is_connected(self) -> bool:
        """Whether the process is running."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        try:
            for message in self._decoder.feed(data):
                self._answers.put_nowait(message)
        except ValueError:
            LOGGER.exception("a worker sent an invalid message")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        self._answers.put_nowait(None)
        self._on_lost(self)

    def send(self, message: Message) -> None:
        """Sends a request, see `worker.serve`; `answer` tells if the process has ended."""
        if self._transport is not None:
            self._transport.write(encode(message))

    async def answer(self) -> Message:
        """Waits for the next answer.

        Raises:
            ProcessEndedError: The process has ended.
        """
        message = await self._answers.get()
        if message is None:
            self._answers.put_nowait(None)  # for later calls
            raise ProcessEndedError
        return message

    def kill(self) -> None:
        """Kills the process. While its socket is open, no other process can have its id."""
        if self._transport is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.close()

    def close(self) -> None:
        """Closes the connection; the process ends after the batch that it is running."""
        self.is_closing = True
        if self._transport is not None:
            self._transport.abort()


class Host:
    """A connection to a host and its workers.

    Args:
        control: Socket for its control messages.
        on_idle: Function to call when a worker can take a batch.
        on_worker_lost: Function to call when a worker has ended without having been told to.
        on_lost: Function to call when the host has ended without having been told to, after it had loaded its model.
        on_ended: Function to call when the host has ended for any reason.

    Attributes:
        loaded: Future with the facts of the model once it is loaded, or `BundleError` or `ProcessEndedError`.
        workers: Connected workers.
        idle: Those that can take a batch.
        is_closing: Whether it gets no more batches, and ends after those that it has.
    """

    def __init__(
        self,
        control: socket.socket,
        *,
        on_idle: Callable[[], None],
        on_worker_lost: Callable[["Host", Worker], None],
        on_lost: Callable[["Host"], None],
        on_ended: Callable[["Host"], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._control, self._on_idle = control, on_idle
        self._on_worker_lost, self._on_lost, self._on_ended = on_worker_lost, on_lost, on_ended
        self.loaded: asyncio.Future[Mapping[str, Any]] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._pid = 0
        self.workers: set[Worker] = set()
        self.idle: list[Worker] = []
        self.is_closing = False
        self._connecting: set[asyncio.Task[None]] = set()
        loop.add_reader(control, self._read)

    @property
    def is_busy(self) -> bool:
        """Whether a worker runs a batch."""
        return len(self.idle) < len(self.workers)

    @property
    def pids(self) -> list[int]:
        """Ids of the host and its workers."""
        return [self._pid, *(worker.pid for worker in self.workers)]

    def fork(self) -> None:
        """Asks for one more worker."""
        if not self._ended.done() and not self.is_closing:
            with suppress(OSError):  # the end of the process is seen by `_read`
                send_control(self._control, {"type": "fork"})

    def release(self, worker: Worker) -> None:
        """Makes a worker whose batch has ended idle, or ends it if the host is closing."""
        if self.is_closing:
            worker.close()
            self._end_if_idle()
        elif worker in self.workers and not worker.is_closing:
            self.idle.append(worker)
            self._on_idle()

    def retire(self) -> None:
        """Ends the process, and the workers that are idle; each of the others ends after its batch."""
        self.is_closing = True
        for worker in self.idle:
            worker.close()
        self.idle.clear()
        self._end_if_idle()

    async def close(self) -> None:
        """Ends the process and its workers at once."""
        self.is_closing = True
        for worker in self.workers:
            worker.close()
        if not self.loaded.done():
            self.kill()
        self._end()
        done, _ = await asyncio.wait([self._ended], timeout=END_SECONDS)
        if not done:
            self.kill()

    def kill(self) -> None:
        """Kills the process and its workers. While its socket is open, no other process can have its id."""
        if self._pid and not self._ended.done():
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _end_if_idle(self) -> None:
        if not any(worker.is_connected for worker in self.workers):
            self._end()

    def _end(self) -> None:
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def _read(self) -> None:
        """Reads one control message; the event loop calls it again while there are more."""
        with suppress(BlockingIOError):
            received = receive_control(self._control)
            if received is None:
                self._lost()
            else:
                self._handle(*received)

    def _handle(self, message: Message, passed: socket.socket | None) -> None:
        if message["type"] == "started":
            self._pid = message["pid"]
        elif message["type"] == "loaded" and not self.loaded.done():
            self.loaded.set_result(message)
        elif message["type"] == "failed" and not self.loaded.done():
            self.loaded.set_exception(BundleError(message["problem"]))
        elif passed is not None:
            task = asyncio.create_task(self._connect(message["pid"], passed))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, pid: int, stream: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        _, worker = await loop.create_unix_connection(lambda: Worker(pid, self._worker_lost), sock=stream)
        self.workers.add(worker)
        if worker.is_connected:
            self.release(worker)
        else:
            self._worker_lost(worker)

    def _worker_lost(self, worker: Worker) -> None:
        if worker not in self.workers:
            return  # it ended before it was added
        self.workers.discard(worker)
        if worker in self.idle:
            self.idle.remove(worker)
        if self.is_closing:
            self._end_if_idle()
        else:
            self._on_worker_lost(self, worker)

    def _lost(self) -> None:
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        self._ended.set_result(None)
        self._on_ended(self)
        if not self.loaded.done():
            self.loaded.set_exception(ProcessEndedError("its process ended while it loaded the model"))
        elif not self.is_closing and self.loaded.exception() is None:
            self._on_lost(self)
