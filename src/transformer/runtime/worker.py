"""A worker of a pool: a forked process that answers requests until its parent ends."""

import ctypes
import os
import select
import signal
import socket
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from transformer.runtime.allocator import freeze_gc
from transformer.runtime.frames import RECEIVED_BYTES, Decoder, Frame, Kind

PR_SET_PDEATHSIG: Final = 1
"""Option of `prctl`: the signal that this process gets when the thread that forked it ends."""
Emit = Callable[[bytes], bool]
"""Sends a part of an answer; returns False if nobody wants the rest."""
Handler = Callable[[bytes, Emit], bytes]
"""Function of a worker: returns the result of a request, after parts of it if there are any."""


def run_worker(answer: Handler, stream: socket.socket, parent: int, initialize: Callable[[], object]) -> NoReturn:
    """Runs a worker in a forked process: it leaves Ctrl-C to its parent and is killed with it.

    Args:
        answer: Function that answers requests. The process ends with a traceback if it raises an exception.
        stream: Socket that is connected to the parent.
        parent: Id of the parent.
        initialize: Function to call first.
    """
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if callable(signal.getsignal(number)):  # a handler of the parent's
                signal.signal(number, signal.SIG_DFL)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would compete with the other workers
        initialize()
        freeze_gc()
        if os.getppid() == parent:
            answer_requests(answer, stream)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def answer_requests(answer: Handler, stream: socket.socket) -> None:
    """Answers the requests that arrive at a socket, one after another, until it is closed.

    Args:
        answer: Function that answers requests.
        stream: Socket with frames of the kinds REQUEST and CANCEL; its answers are PART and RESULT.
    """
    requests = _Requests(stream)
    with suppress(ConnectionError):
        while (request := requests.take()) is not None:

            def emit(part: bytes, key: int = request.key) -> bool:
                stream.sendall(Frame(Kind.PART, key, part).encode())
                return not requests.is_cancelled(key)

            result = answer(request.data, emit)
            stream.sendall(Frame(Kind.RESULT, request.key, result).encode())


class _Requests:
    """Requests that have arrived at a socket."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream, self._decoder = stream, Decoder()
        self._waiting: deque[Frame] = deque()
        self._cancelled: set[int] = set()

    def take(self) -> Frame | None:
        """Waits for the next request; None if the socket was closed."""
        while not self._waiting:
            if not self._receive():
                return None
        request = self._waiting.popleft()
        self._cancelled = {key for key in self._cancelled if key >= request.key}  # earlier ones have been answered
        return request

    def is_cancelled(self, key: int) -> bool:
        """Whether the request that is being answered was cancelled."""
        while key not in self._cancelled and select.select([self._stream], [], [], 0)[0]:
            if not self._receive():
                raise ConnectionError
        return key in self._cancelled

    def _receive(self) -> bool:
        data = self._stream.recv(RECEIVED_BYTES)
        for frame in self._decoder.feed(data):
            if frame.kind == Kind.REQUEST:
                self._waiting.append(frame)
            else:
                self._cancelled.add(frame.key)
        return bool(data)
