"""The server's connection to the process of a model."""

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final, cast

from transformer.errors import BundleError
from transformer.runtime.frames import Decoder, Frame, Kind, decode_message, encode_message

LOGGER: Final = logging.getLogger("transformer.serving")
END_SECONDS: Final = 5
"""Maximum time that a process has to end before it is killed."""
Message = Mapping[str, Any]


class ProcessEndedError(Exception):
    """A process of the engine has ended."""


class ModelProcess(asyncio.Protocol):
    """A connection to a process that describes or loads a model, or reads and writes documents.

    See `transformer.serving.engine.model_process.run` and `transformer.serving.engine.document_process.run`.

    Args:
        on_idle: Function to call when a worker can take a request.
        on_worker_lost: Function to call when a worker has died.
        on_lost: Function to call when the process has ended unexpectedly, after it had loaded its model.
        on_ended: Function to call when the process has ended for any reason.

    Attributes:
        facts: Future with the facts of the model, or `BundleError` or `ProcessEndedError`.
        workers: Ids of its workers.
        is_closing: Whether it gets no more requests, and ends after those that it has.
    """

    def __init__(
        self,
        *,
        on_idle: Callable[[], None] = lambda: None,
        on_worker_lost: Callable[[], None] = lambda: None,
        on_lost: Callable[["ModelProcess"], None] = lambda process: None,
        on_ended: Callable[["ModelProcess"], None] = lambda process: None,
    ) -> None:
        self._on_idle, self._on_worker_lost, self._on_lost, self._on_ended = on_idle, on_worker_lost, on_lost, on_ended
        loop = asyncio.get_running_loop()
        self.facts: asyncio.Future[Mapping[str, Any]] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._pid = 0
        self.workers: list[int] = []
        self.is_closing = False
        self._answers: dict[int, Answer] = {}
        self._keys = count()
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(cls, stream: socket.socket, **callbacks: Any) -> "ModelProcess":
        """Returns a connection over a socket; the arguments are those of the class."""
        loop = asyncio.get_running_loop()
        _, process = await loop.create_unix_connection(lambda: cls(**callbacks), sock=stream)
        return process

    @property
    def is_busy(self) -> bool:
        """Whether a request is not answered yet."""
        return bool(self._answers)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._ended.done()

    @property
    def n_idle(self) -> int:
        """Number of workers that can take a request."""
        return 0 if self.is_closing else max(0, len(self.workers) - len(self._answers))

    @property
    def pids(self) -> list[int]:
        """Ids of the process and its workers; on a GPU it is its own worker."""
        return list({self._pid, *self.workers})

    def request(self, message: Message, content: bytes = b"") -> "Answer":
        """Sends a request, with the bytes of a file if it needs one."""
        key = next(self._keys)
        answer = self._answers[key] = Answer(lambda kind: self._signal(kind, key))
        if self._ended.done():
            del self._answers[key]
            answer.add(None)
        self._send(Frame(Kind.REQUEST, key, encode_message(message, content)))
        return answer

    def retire(self) -> None:
        """Ends the process after the requests that it has."""
        self.is_closing = True
        if not self._answers:
            self._end()

    async def close(self) -> None:
        """Ends the process and its workers at once."""
        self.is_closing = True
        if not self.facts.done():
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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        try:
            for frame in self._decoder.feed(data):
                self._handle(frame)
        except ValueError:
            LOGGER.exception("the process of a model sent an invalid message")
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._ended.set_result(None)
        self.workers = []
        for answer in self._answers.values():
            answer.add(None)
        self._answers.clear()
        self._on_ended(self)
        if not self.facts.done():
            self.facts.set_exception(ProcessEndedError("its process ended while it loaded the model"))
        elif not self.is_closing and self.facts.exception() is None:
            self._on_lost(self)

    def _handle(self, frame: Frame) -> None:
        if frame.kind == Kind.STATUS:
            self._handle_status(json.loads(frame.data))
        elif frame.kind == Kind.PART:
            self._answers[frame.key].add({"part": json.loads(frame.data)})
        else:
            self._answers.pop(frame.key).add(decode_message(frame.data) if frame.kind == Kind.RESULT else None)
            if self.is_closing and not self._answers:
                self._end()
            self._on_idle()

    def _handle_status(self, status: Message) -> None:
        self._pid = status.get("pid", self._pid)
        if "facts" in status and not self.facts.done():
            self.facts.set_result(status["facts"])
        elif "problem" in status and not self.facts.done():
            self.facts.set_exception(BundleError(status["problem"]))
        elif "workers" in status:
            n_died = len(set(self.workers).difference(status["workers"]))
            self.workers = status["workers"]
            for _ in range(n_died):
                self._on_worker_lost()
            self._on_idle()

    def _signal(self, kind: Kind, key: int) -> None:
        if kind == Kind.KILL and self.workers == [self._pid]:
            self.kill()  # it does not receive anything while it computes
        elif key in self._answers:
            self._send(Frame(kind, key))

    def _send(self, frame: Frame) -> None:
        if self._transport is not None and not self._ended.done():
            self._transport.write(frame.encode())

    def _end(self) -> None:
        if self._transport is not None and not self._transport.is_closing() and not self._ended.done():
            self._transport.write_eof()


class Answer:
    """The answer to a request, part by part.

    Args:
        send: Function that sends a frame of a kind about the request.
    """

    def __init__(self, send: Callable[[Kind], None]) -> None:
        self._send = send
        self._parts: asyncio.Queue[Message | None] = asyncio.Queue()

    def add(self, part: Message | None) -> None:
        """Adds a part, or None if the process that worked on the request has ended."""
        self._parts.put_nowait(part)

    async def next(self) -> Message:
        """Waits for the next part.

        Raises:
            ProcessEndedError: The process that worked on the request has ended.
        """
        part = await self._parts.get()
        if part is None:
            raise ProcessEndedError
        return part

    def cancel(self) -> None:
        """Ends the answer early."""
        self._send(Kind.CANCEL)

    def kill(self) -> None:
        """Ends the process that works on the request."""
        self._send(Kind.KILL)
