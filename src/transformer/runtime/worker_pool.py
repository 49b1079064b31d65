"""A pool of worker processes that apply one function to many items.

The processes are forked: they start in milliseconds and share the memory of their parent, such as a model or a
tokenizer. Systems other than Linux cannot fork safely; `CAN_FORK` is False there.
"""

import multiprocessing
import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from mmap import mmap
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from threading import Thread
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet, ref

from transformer.errors import WorkerError
from transformer.runtime.allocator import freeze_gc

CAN_FORK: Final = sys.platform == "linux"
LIVENESS_SECONDS: Final = 1.0
"""Seconds between two looks for a worker that ended in the middle of a message, which nobody else reports."""
T = TypeVar("T")
R = TypeVar("R")


class WorkerPool(Generic[T, R]):
    """Processes that apply a function to items; they start with the first item and run until they are closed.

    Args:
        function: Function that the workers call. They share everything it refers to, which must not change any more.
        n: Number of processes.
        remedy: What to do if a process is killed for lack of memory, for the error message.
        initialize: Function that each worker calls first.
    """

    def __init__(
        self, function: Callable[[T], R], n: int, remedy: str, initialize: Callable[[], object] | None = None
    ) -> None:
        self._remedy = remedy
        self._submitted: WeakSet[Future[R]] = WeakSet()
        self._owner_pid = os.getpid()
        self._failure = ""
        context = multiprocessing.get_context("fork")
        self._thread_refused = mmap(-1, 1)  # shared with the workers
        arguments = self._owner_pid, function, initialize, self._thread_refused
        self._pool = ProcessPoolExecutor(n, context, initializer=_start_worker, initargs=arguments)
        # A process of multiprocessing waits for its own processes when it ends, before a pool would end them.
        Finalize(self, _close_at_exit, args=(ref(self),), exitpriority=0)

    def map(self, items: Iterable[T], ahead: int | None = None) -> Iterator[R]:
        """Applies the function to the items and yields the results in order; the processes start at once, not lazily.

        If the caller stops before the end, or an error occurs, the processes are killed at once.

        Args:
            items: Items, read a few ahead of the results.
            ahead: Number of items that may wait for a process or for the caller; None for all, which are read at once.

        Raises:
            WorkerError: A process was killed, e.g. for lack of memory, or could not be started; or the pool was closed.
        """
        remaining = iter(items)
        with warnings.catch_warnings(), self._closed_on_error():
            # Python warns of forking a process that has threads; no worker uses any of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            futures = deque(map(self._submit, islice(remaining, ahead)))
        return self._results(futures, remaining)

    def _submit(self, item: T) -> Future[R]:
        if not self.is_open:
            raise CancelledError
        try:
            future = self._pool.submit(_call_function, item)
        except BrokenProcessPool:
            raise
        except (OSError, RuntimeError) as error:  # of fork, and of the pool's thread
            self._failure = self._cannot_start()
            raise CancelledError from error
        self._submitted.add(future)
        return future

    def _results(self, futures: deque[Future[R]], remaining: Iterator[T]) -> Generator[R]:
        with self._closed_on_error():
            while futures:
                result = self._wait(futures.popleft())
                futures.extend(map(self._submit, islice(remaining, 1)))
                yield result

    def _wait(self, future: Future[R]) -> R:
        """Returns the result of a future, which a dead worker or the parent of a fork will never give."""
        while self._owner_pid in (os.getpid(), -1):
            with suppress(TimeoutError):
                return future.result(LIVENESS_SECONDS)
            if future.done():  # the function itself ran into a timeout
                return future.result()
            if any(process.exitcode is not None for process in self._processes()):
                raise BrokenProcessPool
        raise CancelledError

    def _processes(self) -> list[BaseProcess]:
        return list((self._pool._processes or {}).values())

    @property
    def is_open(self) -> bool:
        """Whether this process, and not the parent of a fork, made the pool and has not closed it."""
        return self._owner_pid == os.getpid()

    @property
    def is_busy(self) -> bool:
        """Whether a submitted item is not finished yet."""
        return not all(future.done() for future in self._submitted)

    @contextmanager
    def _closed_on_error(self) -> Generator[None]:
        is_done = False
        try:
            yield
            is_done = True
        except (BrokenProcessPool, CancelledError) as error:
            self._failure = self._failure or self._describe_failure(error)
            raise WorkerError(self._failure) from error
        finally:
            if not is_done:
                self.close()

    def _describe_failure(self, error: Exception) -> str:
        if self._owner_pid not in (os.getpid(), -1):
            return "this text was begun before its process was forked; begin it again in this process"
        if self._owner_pid == -1 or isinstance(error, CancelledError):
            return "the worker processes were closed or replaced before this text was finished; finish it first"
        if self._thread_refused[0]:
            return self._cannot_start()
        return f"a worker process was killed, perhaps for lack of memory; {self._remedy}"

    def _cannot_start(self) -> str:
        return (
            "the system does not let this program start the worker processes or their threads; "
            f"{self._remedy}, or raise its limit of processes (ulimit -u)"
        )

    def close(self) -> None:
        """Kills the processes at once."""
        is_open, self._owner_pid = self.is_open, -1
        if is_open:
            self._kill()

    def _kill(self) -> None:
        """Kills the processes and waits for the threads of the pool, which would otherwise run when Python exits.

        Such a thread may be reading a message that a killed process has written only partly. It sees the end of the
        pipe only if this process has closed its copy of the other end.
        """
        self._pool._result_queue._writer.close()  # pyright: ignore[reportAttributeAccessIssue]
        if not self._pool._broken:  # if it is, the pool's thread saw a process end, and closes this pipe itself
            self._pool._call_queue._reader.close()  # pyright: ignore[reportAttributeAccessIssue]
        processes = self._processes()
        for process in processes:
            process.kill()
        with suppress(RuntimeError):  # the pool's thread, which joins the processes, could not be started
            self._pool.shutdown(cancel_futures=True)
        for process in processes:
            process.join()


def _close_at_exit(pool: ref[WorkerPool[Any, Any]]) -> None:
    open_pool = pool()
    if open_pool is not None:
        open_pool.close()


_function: list[Callable[[Any], Any]] = []
"""In a worker: the function of its pool."""


def _start_worker(
    parent: int, function: Callable[[Any], Any], initialize: Callable[[], object] | None, thread_refused: mmap
) -> None:
    """Makes a forked process a worker, which leaves Ctrl-C to its parent and exits with it.

    Args:
        parent: Id of the parent process.
        function: Function of the pool.
        initialize: Function to call first.
        thread_refused: Shared byte, set if the worker cannot start its thread. Its exit code would not always be seen:
            the pool ends the other workers, and two threads may wait for the same process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    try:
        Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    except RuntimeError:
        thread_refused[0] = 1
        os._exit(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would compete with the other workers
    if initialize:
        initialize()
    freeze_gc()
    _function[:] = [function]


def _exit_with_parent(parent: int) -> None:
    """Exits this process as soon as its parent has ended for any reason.

    The end of the pipe from the parent is seen at once, unless another process has inherited the pipe; then the id of
    the parent shows it a second later.
    """
    process = multiprocessing.parent_process()
    assert process is not None
    while process.is_alive() and os.getppid() == parent:
        process.join(1)
    os._exit(1)


def _call_function(item: Any) -> Any:
    return _function[0](item)
