"""The process pool (prefork): it translates and scores, encodes corpora, and does the work of the server.

The processes are forked: they start in milliseconds and share the memory of their parent, such as packed weights or a
tokenizer. Systems other than Linux cannot fork safely; `CAN_FORK` is False there.
"""

import os
import selectors
import socket
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from signal import SIGKILL
from threading import Lock
from typing import Final, NoReturn

from transformer.runtime.frames import Channel, Frame, Kind
from transformer.runtime.worker import Handler, run_worker

CAN_FORK: Final = sys.platform == "linux"
RESTART_SECONDS: Final = 1.0
"""Time after which a worker is replaced that died before it finished a request."""
MAX_ATTEMPTS: Final = 2
"""Number of processes that are given a request, if the first one dies while it works on it."""
_fork_lock = Lock()
# Python warns of forking a process that has threads; no worker uses any of them.
warnings.filterwarnings("ignore", r".*multi-threaded, use of fork", DeprecationWarning)


def _renew_fork_lock() -> None:
    """Replaces the lock in a forked process, where the thread that may hold it does not exist."""
    global _fork_lock
    _fork_lock = Lock()


if CAN_FORK:
    os.register_at_fork(after_in_child=_renew_fork_lock)


@dataclass(eq=False)
class _Worker:
    """A running process of a pool.

    Attributes:
        pid: Id of the process.
        pidfd: Descriptor that becomes readable when it ends, since another process may hold its end of the socket;
            None before Linux 5.3, where only the socket shows it.
        channel: Connection to it.
        requests: Its requests, the one that it works on first.
        n_results: Number of results that it has sent.
    """

    pid: int
    pidfd: int | None
    channel: Channel
    requests: list[Frame] = field(default_factory=list[Frame])
    n_results: int = 0


class Pool:
    """Processes that answer requests, each on one core. A process that dies is replaced.

    `run` forks them, distributes the requests and passes their answers on, until `stop` is called. Requests go to the
    processes in the order in which they were sent. While many wait, a process gets its next one before it has finished.

    Args:
        answer: Function that the processes call with each request. They share everything that it refers to, which must
            not change any more.
        n: Number of processes.
        receive: Function that `run` calls with each answer: a frame with the key of its request and the kind PART,
            RESULT, or DIED if its process has ended, or if it was cancelled or killed before it was begun.
        initialize: Function that each process calls first.
        changed: Function that `run` calls with the ids of all processes when one was started, and when one died.
    """

    def __init__(
        self,
        answer: Handler,
        n: int,
        receive: Callable[[Frame], None],
        initialize: Callable[[], object] = lambda: None,
        changed: Callable[[list[int]], None] = lambda pids: None,
    ) -> None:
        self._answer, self._n, self._initialize = answer, n, initialize
        self._pass_on, self._changed = receive, changed
        self._selector = selectors.DefaultSelector()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._incoming: deque[Frame] = deque()
        self._waiting: deque[Frame] = deque()
        self._workers: list[_Worker] = []
        self._starts = [0.0] * n  # times at which workers are to be started
        self._is_stopped = False
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, lambda _: self._wake_receiver.recv(1 << 10))

    def send(self, frame: Frame) -> None:
        """Sends a frame of the kind REQUEST, CANCEL or KILL; any thread may call it, also before `run`."""
        self._incoming.append(frame)
        self._wake_up()

    def connect(self, stream: socket.socket) -> Callable[[Frame], None]:
        """Makes `run` take requests from a socket until it is closed; returns a function that sends frames over it."""
        channel = Channel(stream)

        def receive() -> None:
            for frame in channel.receive():
                self.send(frame)
            if channel.is_closed:
                self.stop()

        self._register(channel, receive)
        return partial(self._send, channel)

    def stop(self) -> None:
        """Makes `run` kill the processes and return; any thread may call it."""
        self._is_stopped = True
        self._wake_up()

    def _wake_up(self) -> None:
        with suppress(OSError):  # `run` has returned, or is woken already
            self._wake_sender.send(b"\0", socket.MSG_DONTWAIT)

    def run(self) -> None:
        """Runs the processes until `stop` is called. They are killed when the calling thread ends for any reason.

        Raises:
            OSError: A process cannot be started.
        """
        try:
            while not self._is_stopped:
                self._start_due()
                self._take_incoming()
                self._distribute()
                for key, events in self._selector.select(self._seconds_to_start()):
                    if key.fd in self._selector.get_map():  # otherwise a process has ended whose socket it was
                        key.data(events)
        finally:
            self._reap_all()

    def _seconds_to_start(self) -> float | None:
        if self._incoming:  # added by a function that `run` called
            return 0.0
        return max(0.0, min(self._starts) - time.monotonic()) if self._starts else None

    def _start_due(self) -> None:
        now = time.monotonic()
        for start in [start for start in self._starts if start <= now]:
            self._starts.remove(start)
            self._fork()
            self._changed([worker.pid for worker in self._workers])

    def _fork(self) -> None:
        parent = os.getpid()
        with _fork_lock:  # otherwise the workers of another pool may inherit the other end of the socket
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    pid = os.fork()
                except BaseException:
                    ours.close()
                    raise
                if not pid:
                    ours.close()
                    self._become_worker(theirs, parent)
        worker = _Worker(pid, _open_pidfd(pid), Channel(ours))
        self._workers.append(worker)
        self._register(worker.channel, lambda: self._receive(worker))
        if worker.pidfd is not None:
            self._selector.register(worker.pidfd, selectors.EVENT_READ, lambda _: self._handle_death(worker))

    def _become_worker(self, stream: socket.socket, parent: int) -> NoReturn:
        for key in self._selector.get_map().values():
            key.fileobj.close() if isinstance(key.fileobj, socket.socket) else os.close(key.fd)
        self._selector.close()
        self._wake_sender.close()
        run_worker(self._answer, stream, parent, self._initialize)

    def _take_incoming(self) -> None:
        while self._incoming:
            frame = self._incoming.popleft()
            if frame.kind == Kind.REQUEST:
                self._waiting.append(frame)
                continue
            worker = next(
                (worker for worker in self._workers if any(r.key == frame.key for r in worker.requests)), None
            )
            if worker is None:
                self._discard_waiting(frame.key)
            elif frame.kind == Kind.KILL:
                _kill(worker)  # `run` will see its end
            else:
                self._send(worker.channel, frame)

    def _discard_waiting(self, key: int) -> None:
        n_waiting = len(self._waiting)
        self._waiting = deque(request for request in self._waiting if request.key != key)
        if len(self._waiting) < n_waiting:
            self._pass_on(Frame(Kind.DIED, key))

    def _distribute(self) -> None:
        while self._waiting:
            depth = 2 if len(self._waiting) > self._n else 1
            worker = min(self._workers, key=lambda worker: len(worker.requests), default=None)
            if worker is None or len(worker.requests) >= depth:
                return
            worker.requests.append(self._waiting.popleft())
            self._send(worker.channel, worker.requests[-1])

    def _register(self, channel: Channel, receive: Callable[[], None]) -> None:
        """Makes `run` call a function when a socket can be read, and send the rest of frames when it can be written."""

        def handle(events: int) -> None:
            if events & selectors.EVENT_WRITE:
                self._send(channel)
            if events & selectors.EVENT_READ:
                receive()

        self._selector.register(channel.stream, selectors.EVENT_READ, handle)

    def _send(self, channel: Channel, frame: Frame | None = None) -> None:
        """Sends a frame, or the rest of earlier ones."""
        channel.send(frame) if frame else channel.flush()
        writes = selectors.EVENT_WRITE if channel.has_unsent else 0
        handle = self._selector.get_key(channel.stream).data
        self._selector.modify(channel.stream, selectors.EVENT_READ | writes, handle)

    def _receive(self, worker: _Worker) -> None:
        try:
            frames = worker.channel.receive()
        except ValueError:  # an invalid frame
            worker.channel.is_closed, frames = True, []
        for frame in frames:
            if frame.kind == Kind.RESULT:
                worker.requests = [request for request in worker.requests if request.key != frame.key]
                worker.n_results += 1
            self._pass_on(frame)
        if worker.channel.is_closed:
            self._handle_death(worker)

    def _handle_death(self, worker: _Worker) -> None:
        """Passes on the last results of a dead worker, and schedules its replacement.

        Of its requests, the first may be why it died; the others are given to other workers.
        """
        if worker not in self._workers:
            return  # its other descriptor was handled first
        self._workers.remove(worker)
        self._receive(worker)
        self._reap(worker)
        self._starts.append(time.monotonic() + (0.0 if worker.n_results else RESTART_SECONDS))
        self._changed([worker.pid for worker in self._workers])
        self._waiting.extendleft(reversed(worker.requests[1:]))
        for request in worker.requests[:1]:
            self._pass_on(Frame(Kind.DIED, request.key))

    def _reap(self, worker: _Worker) -> None:
        _kill(worker)
        self._selector.unregister(worker.channel.stream)
        worker.channel.stream.close()
        if worker.pidfd is not None:
            self._selector.unregister(worker.pidfd)
            os.close(worker.pidfd)
        with suppress(ChildProcessError):  # someone else has waited for it
            os.waitpid(worker.pid, 0)

    def _reap_all(self) -> None:
        for worker in self._workers:
            self._reap(worker)
        self._workers.clear()
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _kill(worker: _Worker) -> None:
    with suppress(ProcessLookupError):  # as long as nobody has waited for it, no other process can have its id
        os.kill(worker.pid, SIGKILL)


def serve_pool(
    answer: Handler,
    n: int,
    stream: socket.socket,
    initialize: Callable[[], object],
    status: Callable[[list[int]], bytes],
) -> None:
    """Runs a pool for another process, which sends requests over a socket, until that process closes it.

    Args:
        answer: Function that the processes call with each request.
        n: Number of processes.
        stream: Socket that is connected to the other process.
        initialize: Function that each process calls first.
        status: Function that returns the data of a STATUS frame from the ids of all processes.
    """
    pool = Pool(
        answer, n, lambda frame: send(frame), initialize, lambda pids: send(Frame(Kind.STATUS, data=status(pids)))
    )
    send = pool.connect(stream)
    pool.run()
