"""Several searches at a time, each in a process of its own: small products gain more from that than from sharing them.

The processes are forked, so that they share the model's memory, and each computes on one thread.
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
from transformer.runtime.allocator import leave_out_of_collections, retain_heap, trim_heap
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokenIds

MOST_WORKERS: Final = 8
"""By default; each keeps caches of its own."""
BATCHES_TO_HOLES: Final = 16
"""Batches after which a worker gives back the holes that they left, which takes 4 % of one by a base model."""


def most_workers() -> int:
    """As many workers as torch has threads, up to 8, where processes can be forked safely; else 1."""
    may_fork = sys.platform == "linux" and not torch.cuda.is_initialized()
    return min(torch.get_num_threads(), MOST_WORKERS) if may_fork else 1


class Workers:
    """Processes that search with one model, from the first search on until they are closed.

    Args:
        model: in evaluation mode, on the CPU; it must not change any more.
        search: how.
        n: how many.
        special_tokens: Ids of the special tokens.

    """

    def __init__(
        self, model: GenerativeModel, search: Search, n: int, special_tokens: SpecialTokenIds = DEFAULT_SPECIAL_TOKENS
    ) -> None:
        self.model, self.search, self.n, self.special_tokens = model, search, n, special_tokens
        self._begun: WeakSet[Future[list[list[Hypothesis]]]] = WeakSet()
        self._made_by = os.getpid()
        context = multiprocessing.get_context("fork")
        given = model, search, special_tokens, self._made_by
        self._pool = ProcessPoolExecutor(n, context, initializer=_begin, initargs=given)

    def serve(self, model: GenerativeModel, search: Search, n: int) -> bool:
        """Whether these are the workers that one would make now, and of this very process."""
        return (self.model, self.search, self.n, self._made_by) == (model, search, n, os.getpid())

    def search_each(self, requests: Iterable[Request], batch_tokens: int) -> Iterator[tuple[int, list[Hypothesis]]]:
        """As `transformer.decoding.search_each`, batch by batch; the processes begin at once, not when they are asked.

        When the caller stops before the end, or an error does, the processes end at once, with what they are at.

        Raises:
            WorkerError: a process was killed, e.g. for lack of memory, or the workers were closed.
        """
        with warnings.catch_warnings(), self._ended_by_errors():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, of which no worker uses any
            batches = in_batches(requests, batch_tokens // self.search.beam)
            found = deque(self._pool.submit(_search, batch) for batch in batches)
        self._begun.update(found)
        return self._results(found)

    def _results(self, batches: deque[Future[list[list[Hypothesis]]]]) -> Iterator[tuple[int, list[Hypothesis]]]:
        number = count()
        with self._ended_by_errors():
            while batches:
                for hypotheses in batches.popleft().result():
                    yield next(number), hypotheses

    @property
    def are_at_work(self) -> bool:
        """Whether anything that was begun is not found yet."""
        return not all(batch.done() for batch in self._begun)

    @contextmanager
    def _ended_by_errors(self) -> Generator[None]:
        is_done = False
        try:
            yield
            is_done = True
        except (BrokenProcessPool, CancelledError) as error:
            raise WorkerError(
                "the processes that translate were closed, or made anew, before this text was finished; finish it first"
                if self._made_by < 0
                else "a process that translates was killed, perhaps for lack of memory; use fewer --workers"
            ) from error
        finally:
            if not is_done:
                self.close()

    def close(self) -> None:
        """Ends the processes at once."""
        is_ours, self._made_by = self._made_by == os.getpid(), -1
        if is_ours:
            self._kill()

    def _kill(self) -> None:
        """Ends the processes.

        The pool's threads are waited for, or they would still be at it when Python ends. They may be at half a message
        of a process that is no more, of which there is an end only where this process holds none of the others' ends
        of the pipes.
        """
        self._pool._result_queue._writer.close()  # pyright: ignore[reportAttributeAccessIssue]
        if not self._pool._broken:  # else the pool's thread, which saw a process end, is closing this one itself
            self._pool._call_queue._reader.close()  # pyright: ignore[reportAttributeAccessIssue]
        for process in list((self._pool._processes or {}).values()):
            process.kill()
        self._pool.shutdown(cancel_futures=True)


def in_batches(requests: Iterable[Request], most_tokens: int) -> Iterator[list[Request]]:
    """Neighbours, as many as have at most so many tokens when all are as long as the longest; at least one."""
    batch: list[Request] = []
    longest = 0
    for request in requests:
        longest = max(longest, len(request.source))
        if batch and (len(batch) + 1) * longest > most_tokens:
            yield batch
            batch, longest = [], len(request.source)
        batch.append(request)
    if batch:
        yield batch


_searches: list[tuple[GenerativeModel, Search, SpecialTokenIds]] = []
"""In a worker: what it searches with, and how."""
_batches = count(1)
"""Of a worker."""
_mode = torch.inference_mode()
"""Of a worker, from its beginning to its end."""


def _begin(model: GenerativeModel, search: Search, special_tokens: SpecialTokenIds, parent: int) -> None:
    """Makes a forked process a worker: one thread, Ctrl-C left to its parent, and an end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    retain_heap()
    leave_out_of_collections()
    _mode.__enter__()
    _searches[:] = [(model, search, special_tokens)]


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent, however that ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _search(requests: Sequence[Request]) -> list[list[Hypothesis]]:
    model, search, special_tokens = _searches[0]
    everything = search.beam * sum(len(request.source) for request in requests) * len(requests)
    found = search_all(model, requests, search, batch_tokens=everything, special_tokens=special_tokens)
    if next(_batches) % BATCHES_TO_HOLES == 0:
        trim_heap()
    return found


@contextmanager
def one_thread() -> Generator[None]:
    """Computes on one of torch's threads: sums are then always made in the same order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
