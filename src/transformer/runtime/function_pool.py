"""A pool whose processes apply one function of this process to items."""

import os
import pickle
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from threading import RLock, Thread, current_thread
from typing import Any, Final, Generic, TypeVar
from weakref import finalize

from transformer.errors import WorkerError
from transformer.runtime.frames import Frame, Kind
from transformer.runtime.pool import MAX_ATTEMPTS, Pool
from transformer.runtime.worker import Emit, Handler

CLOSED: Final = "the worker processes were closed or replaced before this text was finished; finish it first"
FORKED: Final = "this text was begun before its process was forked; begin it again in this process"
KILLED: Final = "a worker process was killed, perhaps for lack of memory; {remedy}"
CANNOT_START: Final = (
    "the system does not let this program start the worker processes or their threads; {remedy}, or raise its limit of "
    "processes (ulimit -u)"
)
T = TypeVar("T")
R = TypeVar("R")


class FunctionPool(Generic[T, R]):
    """Processes that apply a function to items; they start with the first item and run until they are closed.

    Items and results are pickled, since they come from this process and go to it. The item of a process that dies is
    given to another one.

    Args:
        function: Function that the processes call. They share everything that it refers to, which must not change any
            more.
        n: Number of processes.
        remedy: What to do if processes are killed for lack of memory, for the error message.
        initialize: Function that each process calls first.
    """

    def __init__(
        self, function: Callable[[T], R], n: int, remedy: str, initialize: Callable[[], object] = lambda: None
    ) -> None:
        self._owner_pid = os.getpid()
        self._items = _Items(partial(_answer, function), n, remedy, initialize)
        self._close = finalize(self, _close, self._items, self._owner_pid)

    def map(self, items: Iterable[T], ahead: int | None = None) -> Iterator[R]:
        """Applies the function to the items and yields the results in order; the processes start at once, not lazily.

        If the caller stops before the end, or an error occurs, the processes are killed at once.

        Args:
            items: Items, read a few ahead of the results.
            ahead: Number of items that may wait for a process or for the caller; None for all, which are read at once.

        Raises:
            WorkerError: Two processes were killed while they worked on an item, e.g. for lack of memory; or processes
                could not be started; or the pool was closed.
        """
        remaining = iter(items)
        with self._closed_on_error():
            futures = deque(map(self._submit, islice(remaining, ahead)))
        return self._results(futures, remaining)

    def _submit(self, item: T) -> Future[bytes]:
        self._check_owner()
        return self._items.submit(pickle.dumps(item, pickle.HIGHEST_PROTOCOL))

    def _results(self, futures: deque[Future[bytes]], remaining: Iterator[T]) -> Generator[R]:
        with self._closed_on_error():
            while futures:
                self._check_owner()
                result, error = pickle.loads(futures.popleft().result())  # noqa: S301 - written by a fork of this
                if error is not None:
                    raise error
                futures.extend(map(self._submit, islice(remaining, 1)))
                yield result

    def _check_owner(self) -> None:
        if self._owner_pid != os.getpid():
            raise WorkerError(FORKED)

    @property
    def is_open(self) -> bool:
        """Whether this process, and not the parent of a fork, made the pool and has not closed it."""
        return self._owner_pid == os.getpid() and self._items.failure is None

    @property
    def is_busy(self) -> bool:
        """Whether an item is not finished yet."""
        return self._items.are_waiting

    @property
    def pids(self) -> list[int]:
        """Ids of the running processes."""
        return self._items.pids

    @contextmanager
    def _closed_on_error(self) -> Generator[None]:
        is_done = False
        try:
            yield
            is_done = True
        finally:
            if not is_done:
                self.close()

    def close(self) -> None:
        """Kills the processes at once; items that are not finished fail."""
        self._close()


@dataclass
class _Item:
    """A pickled item, its future result, and the number of processes that were given it."""

    data: bytes
    result: Future[bytes] = field(default_factory=Future[bytes])
    attempts: int = 1


class _Items:
    """Items that wait for their results, and the thread that runs the processes; it has no reference to its owner."""

    def __init__(self, answer: Handler, n: int, remedy: str, initialize: Callable[[], object]) -> None:
        self._remedy = remedy
        self._pool = Pool(answer, n, self._receive, initialize, self._set_pids)
        self._thread = Thread(target=self._run, daemon=True)
        self._waiting: dict[int, _Item] = {}
        self._keys, self._lock = count(), RLock()  # the garbage collector may close a pool within any statement
        self.failure: WorkerError | None = None
        self.pids: list[int] = []

    @property
    def are_waiting(self) -> bool:
        return bool(self._waiting)

    def submit(self, data: bytes) -> Future[bytes]:
        key, item = next(self._keys), _Item(data)
        with self._lock:
            if self._thread.ident is None and self.failure is None:
                self._start()
            if self.failure is not None:
                raise self.failure
            self._waiting[key] = item
        self._pool.send(Frame(Kind.REQUEST, key, data))
        return item.result

    def close(self) -> None:
        self._fail(CLOSED)
        self._pool.stop()
        if self._thread.ident is None:
            self._pool.run()  # which returns at once
        elif self._thread is not current_thread():
            self._thread.join()

    def _start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError:
            self.failure = WorkerError(CANNOT_START.format(remedy=self._remedy))

    def _run(self) -> None:
        try:
            self._pool.run()
        except OSError:
            self._fail(CANNOT_START)
        except BaseException as error:
            self._fail(f"the worker processes cannot be used: {type(error).__name__}: {error}")
            raise

    def _set_pids(self, pids: list[int]) -> None:
        self.pids = pids

    def _receive(self, frame: Frame) -> None:
        if frame.kind == Kind.RESULT:
            with self._lock:
                item = self._waiting.pop(frame.key, None)
            if item is not None:
                item.result.set_result(frame.data)
        elif frame.kind == Kind.DIED and (item := self._waiting.get(frame.key)) is not None:
            item.attempts += 1
            if item.attempts > MAX_ATTEMPTS:
                self._fail(KILLED)
                self._pool.stop()
            else:
                self._pool.send(Frame(Kind.REQUEST, frame.key, item.data))

    def _fail(self, message: str) -> None:
        """Fails all items, unless they have failed before."""
        with self._lock:
            self.failure = self.failure or WorkerError(message.format(remedy=self._remedy))
            failed, self._waiting = self._waiting, {}
        for item in failed.values():
            item.result.set_exception(self.failure)


def _close(items: _Items, owner_pid: int) -> None:
    if owner_pid == os.getpid():
        items.close()


def _answer(function: Callable[[Any], Any], request: bytes, emit: Emit) -> bytes:
    """Returns the pickled result of a function and None, or None and its exception."""
    try:
        return pickle.dumps((function(pickle.loads(request)), None), pickle.HIGHEST_PROTOCOL)  # noqa: S301
    except Exception as error:
        error.add_note("in a worker process:\n" + traceback.format_exc().rstrip())
        return _pickled_error(error)


def _pickled_error(error: Exception) -> bytes:
    try:
        data = pickle.dumps((None, error))
        pickle.loads(data)  # noqa: S301
    except Exception:  # of a class that cannot be made from its arguments
        return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
    return data
