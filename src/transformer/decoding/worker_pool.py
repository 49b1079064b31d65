"""A pool of worker processes that search in parallel.

For small matrix products, this is faster than sharing each product among threads. The processes are forked, so that
they share the model's memory, and each computes on one thread.
"""

import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import count
from threading import Thread
from typing import Final
from weakref import WeakSet

import torch

from transformer.decoding.config import Request, Search
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.search import search_all
from transformer.errors import WorkerError
from transformer.interfaces import GenerativeModel
from transformer.runtime.allocator import freeze_gc, retain_heap, trim_heap
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokenIds

MAX_DEFAULT_WORKERS: Final = 8
"""Maximum of `default_workers`, since each worker has its own caches."""
TRIM_INTERVAL: Final = 16
"""Batches after which a worker returns free heap memory, which takes 4 % of the time of one batch by a base model."""


def default_workers() -> int:
    """Returns the number of torch's threads, up to 8, if processes can be forked safely; otherwise 1."""
    may_fork = sys.platform == "linux" and not torch.cuda.is_initialized()
    return min(torch.get_num_threads(), MAX_DEFAULT_WORKERS) if may_fork else 1


class Workers:
    """Processes that search with one model; they start with the first search and run until they are closed.

    Args:
        model: Model in evaluation mode, on the CPU, which must not change any more.
        search: Options of the search.
        n: Number of processes.
        special_tokens: Special tokens of the model.

    """

    def __init__(
        self, model: GenerativeModel, search: Search, n: int, special_tokens: SpecialTokenIds = DEFAULT_SPECIAL_TOKENS
    ) -> None:
        self.model, self.search, self.n, self.special_tokens = model, search, n, special_tokens
        self._submitted: WeakSet[Future[list[list[Hypothesis]]]] = WeakSet()
        self._owner_pid = os.getpid()
        context = multiprocessing.get_context("fork")
        arguments = model, search, special_tokens, self._owner_pid
        self._pool = ProcessPoolExecutor(n, context, initializer=_initialize_worker, initargs=arguments)

    def matches(self, model: GenerativeModel, search: Search, n: int) -> bool:
        """Whether these workers belong to this process and have the same model, options and number."""
        return (self.model, self.search, self.n, self._owner_pid) == (model, search, n, os.getpid())

    def search_each(self, requests: Iterable[Request], batch_tokens: int) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Same as `transformer.decoding.search_each`, but batch by batch; the processes start at once, not lazily.

        If the caller stops before the end, or an error occurs, the processes are killed at once.

        Raises:
            WorkerError: A process was killed, e.g. for lack of memory, or the workers were closed.
        """
        with warnings.catch_warnings(), self._closed_on_error():
            # Python warns of forking a process that has threads; no worker uses any of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            batches = make_batches(requests, batch_tokens // self.search.beam)
            futures = deque(self._pool.submit(_search_batch, batch) for batch in batches)
        self._submitted.update(futures)
        return self._results(futures)

    def _results(self, futures: deque[Future[list[list[Hypothesis]]]]) -> Iterator[tuple[int, list[Hypothesis]]]:
        index = count()
        with self._closed_on_error():
            while futures:
                for hypotheses in futures.popleft().result():
                    yield next(index), hypotheses

    @property
    def is_busy(self) -> bool:
        """Whether a submitted batch is not finished yet."""
        return not all(future.done() for future in self._submitted)

    @contextmanager
    def _closed_on_error(self) -> Generator[None]:
        is_done = False
        try:
            yield
            is_done = True
        except (BrokenProcessPool, CancelledError) as error:
            raise WorkerError(
                "the worker processes were closed or replaced before this text was finished; finish it first"
                if self._owner_pid < 0
                else "a worker process was killed, perhaps for lack of memory; use fewer --workers"
            ) from error
        finally:
            if not is_done:
                self.close()

    def close(self) -> None:
        """Kills the processes at once."""
        is_owner, self._owner_pid = self._owner_pid == os.getpid(), -1
        if is_owner:
            self._kill()

    def _kill(self) -> None:
        """Kills the processes and waits for the threads of the pool, which would otherwise run when Python exits.

        Such a thread may be reading a message that a killed process has written only partly. It sees the end of the
        pipe only if this process has closed its copy of the other end.
        """
        self._pool._result_queue._writer.close()  # pyright: ignore[reportAttributeAccessIssue]
        if not self._pool._broken:  # if it is, the pool's thread saw a process end, and closes this pipe itself
            self._pool._call_queue._reader.close()  # pyright: ignore[reportAttributeAccessIssue]
        for process in list((self._pool._processes or {}).values()):
            process.kill()
        self._pool.shutdown(cancel_futures=True)


def make_batches(requests: Iterable[Request], max_tokens: int) -> Iterator[list[Request]]:
    """Yields batches of consecutive requests with at most `max_tokens` source tokens, padding included.

    A request that alone exceeds the maximum is a batch of its own.
    """
    batch: list[Request] = []
    longest = 0
    for request in requests:
        longest = max(longest, len(request.source))
        if batch and (len(batch) + 1) * longest > max_tokens:
            yield batch
            batch, longest = [], len(request.source)
        batch.append(request)
    if batch:
        yield batch


_arguments: list[tuple[GenerativeModel, Search, SpecialTokenIds]] = []
"""In a worker: its model, the options of the search, and the special tokens."""
_batch_numbers = count(1)
"""In a worker: the numbers of its batches."""
_inference_mode = torch.inference_mode()
"""In a worker: the inference mode that it runs in from start to end."""


def _initialize_worker(model: GenerativeModel, search: Search, special_tokens: SpecialTokenIds, parent: int) -> None:
    """Makes a forked process a worker with one thread, which leaves Ctrl-C to its parent and exits with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    retain_heap()
    freeze_gc()
    _inference_mode.__enter__()
    _arguments[:] = [(model, search, special_tokens)]


def _exit_with_parent(parent: int) -> None:
    """Exits this process soon after its parent has ended for any reason."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _search_batch(requests: Sequence[Request]) -> list[list[Hypothesis]]:
    model, search, special_tokens = _arguments[0]
    batch_tokens = search.beam * sum(len(request.source) for request in requests) * len(requests)  # all at once
    results = search_all(model, requests, search, batch_tokens=batch_tokens, special_tokens=special_tokens)
    if next(_batch_numbers) % TRIM_INTERVAL == 0:
        trim_heap()
    return results


@contextmanager
def single_thread() -> Generator[None]:
    """Limits torch to one thread, so that sums are always computed in the same order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
