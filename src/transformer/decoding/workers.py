"""Several searches at a time, each in a process of its own: small products gain more from that than from sharing them.

The processes are forked, so that they share the model's memory, and each computes on one thread.
"""

import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from threading import Thread

import torch

from transformer.decoding.engine import search_all
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.search import Request, Search
from transformer.errors import WorkerError
from transformer.memory import keep_freed_memory
from transformer.protocols import Generates


def most_workers() -> int:
    """As many workers as torch has threads, where processes can be forked safely."""
    return torch.get_num_threads() if sys.platform == "linux" and not torch.cuda.is_initialized() else 1


class Workers:
    """Processes that search with one model, from the first search on until the last reference to them goes.

    Args:
        model: in evaluation mode, on the CPU; it must not change any more.
        search: how.
        n: how many.
    """

    def __init__(self, model: Generates, search: Search, n: int) -> None:
        context = multiprocessing.get_context("fork")
        self.search = search
        self._pool = ProcessPoolExecutor(n, context, initializer=_begin, initargs=(model, search, os.getpid()))

    def search_each(self, requests: Iterable[Request], batch_tokens: int) -> Iterator[tuple[int, list[Hypothesis]]]:
        """As `transformer.decoding.search_each`, batch by batch.

        Raises:
            WorkerError: a process was killed, e.g. for lack of memory.
        """
        batches = list(in_batches(requests, batch_tokens // self.search.beam))
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # of forking beside threads: none of them is used in the child
            results = self._pool.map(_search, batches)
        index = 0
        try:
            for found in results:
                for hypotheses in found:
                    yield index, hypotheses
                    index += 1
        except BrokenProcessPool as error:
            raise WorkerError(
                "a process that translates was killed, perhaps for lack of memory; use fewer --workers"
            ) from error


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


_searches: list[tuple[Generates, Search]] = []
"""In a worker: what it searches with, and how."""


def _begin(model: Generates, search: Search, parent: int) -> None:
    """Makes a forked process a worker: one thread, Ctrl-C left to its parent, and an end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    keep_freed_memory()
    _searches[:] = [(model, search)]


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent, however that ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _search(requests: Sequence[Request]) -> list[list[Hypothesis]]:
    model, search = _searches[0]
    everything = search.beam * sum(len(request.source) for request in requests) * len(requests)
    return search_all(model, requests, search, batch_tokens=everything)
