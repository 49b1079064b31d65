"""A pool of worker processes that search in parallel.

For small matrix products, this is faster than sharing each product among threads. The processes are forked, so that
they share the model's memory, and each computes on one thread.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, count
from typing import Final

import torch

from transformer.decoding.config import Average, Request, Search
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.length_penalties import LengthNormalization, PaperLengthPenalty
from transformer.decoding.search import search_all
from transformer.interfaces import GenerativeModel
from transformer.runtime.allocator import retain_heap, trim_heap
from transformer.runtime.worker_pool import CAN_FORK, WorkerPool
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokenIds

MAX_DEFAULT_WORKERS: Final = 8
"""Maximum of `default_workers`, since each worker has its own caches."""
TRIM_INTERVAL: Final = 16
"""Batches after which a worker returns free heap memory, which takes 4 % of the time of one batch by a base model."""


def default_workers() -> int:
    """Returns the number of torch's threads, up to 8, if processes can be forked safely; otherwise 1."""
    may_fork = CAN_FORK and not torch.cuda.is_initialized()
    return min(torch.get_num_threads(), MAX_DEFAULT_WORKERS) if may_fork else 1


class Workers(WorkerPool[tuple[Search, list[Request]], list[list[Hypothesis]]]):
    """Processes that search with one model; they start with the first search and run until they are closed.

    The options of a search are sent with each batch, so that one pool serves all searches of a model.

    Args:
        models: Model in evaluation mode, on the CPU, for each kind of average; it must not change any more.
        n: Number of processes.
        special_tokens: Special tokens of the model.
    """

    def __init__(
        self,
        models: Mapping[Average, GenerativeModel],
        n: int,
        special_tokens: SpecialTokenIds = DEFAULT_SPECIAL_TOKENS,
    ) -> None:
        super().__init__(partial(_search_batch, models, special_tokens), n, "use fewer --workers", _initialize_worker)

    @staticmethod
    def accept(search: Search) -> bool:
        """Whether a search can be sent to another process: a function of the caller's as its penalty cannot."""
        return isinstance(search.length_penalty, PaperLengthPenalty | LengthNormalization)

    def search_each(
        self, requests: Iterable[Request], search: Search, batch_tokens: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Same as `transformer.decoding.search_each`, but batch by batch; the processes start at once, not lazily.

        If the caller stops before the end, or an error occurs, the processes are killed at once.

        Raises:
            WorkerError: A process was killed, e.g. for lack of memory, or the workers were closed.
        """
        batches = make_batches(requests, batch_tokens // search.beam)
        return enumerate(chain.from_iterable(self.map((search, batch) for batch in batches)))


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


_batch_numbers = count(1)
"""In a worker: the numbers of its batches."""
_inference_mode = torch.inference_mode()
"""In a worker: the inference mode that it runs in from start to end."""


def _initialize_worker() -> None:
    torch.set_num_threads(1)
    retain_heap()
    _inference_mode.__enter__()


def _search_batch(
    models: Mapping[Average, GenerativeModel],
    special_tokens: SpecialTokenIds,
    message: tuple[Search, Sequence[Request]],
) -> list[list[Hypothesis]]:
    search, requests = message
    batch_tokens = search.beam * sum(len(request.source) for request in requests) * len(requests)  # all at once
    results = search_all(
        models[search.average], requests, search, batch_tokens=batch_tokens, special_tokens=special_tokens
    )
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
