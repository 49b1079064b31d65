"""Searches in worker processes.

For small matrix products, this is faster than sharing each product among threads. The processes share the memory of the
models, and each computes on one thread.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import torch

from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.request import Request
from transformer.decoding.search import search_all
from transformer.interfaces import GenerativeModel
from transformer.options.length_penalties import LengthNormalization, PaperLengthPenalty
from transformer.options.search import Average, Search
from transformer.runtime.compute_worker import end_batch, initialize_compute_worker
from transformer.runtime.function_pool import FunctionPool
from transformer.runtime.pool import CAN_FORK
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokenIds

MAX_DEFAULT_WORKERS: Final = 8
"""Maximum of `default_workers`, since each worker has its own caches."""


def default_workers() -> int:
    """Returns the number of torch's threads, up to 8, if processes can be forked safely; otherwise 1."""
    may_fork = CAN_FORK and not torch.cuda.is_initialized()
    return min(torch.get_num_threads(), MAX_DEFAULT_WORKERS) if may_fork else 1


@dataclass(frozen=True)
class SharedModels:
    """Models that worker processes share with their parent, in evaluation mode and on the CPU; they must not change.

    Attributes:
        generators: Model to search with, for each kind of average.
        models: The single models of an ensemble.
        special_tokens: Special tokens of the target.
    """

    generators: Mapping[Average, GenerativeModel]
    models: Sequence[Any] = ()
    special_tokens: SpecialTokenIds = DEFAULT_SPECIAL_TOKENS


class Workers(FunctionPool[Callable[[SharedModels], Any], Any]):
    """Processes that run tasks with shared models, such as searches of any options.

    Args:
        shared: The models.
        n: Number of processes.
    """

    def __init__(self, shared: SharedModels, n: int) -> None:
        super().__init__(partial(_run, shared), n, "use fewer --workers", initialize_compute_worker)

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
            WorkerError: Processes were killed, e.g. for lack of memory, or the workers were closed.
        """
        batches = make_batches(requests, batch_tokens // search.beam)
        return enumerate(chain.from_iterable(self.map(SearchTask(search, batch) for batch in batches)))


@dataclass(frozen=True)
class SearchTask:
    """A search for the continuations of a batch of requests."""

    search: Search
    requests: Sequence[Request]

    def __call__(self, shared: SharedModels) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each request."""
        n_tokens = sum(len(request.source) for request in self.requests)
        return search_all(
            shared.generators[self.search.average],
            self.requests,
            self.search,
            batch_tokens=self.search.beam * n_tokens * len(self.requests),  # all at once
            special_tokens=shared.special_tokens,
        )


def _run(shared: SharedModels, task: Callable[[SharedModels], Any]) -> Any:
    result = task(shared)
    end_batch()
    return result


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


@contextmanager
def single_thread() -> Generator[None]:
    """Limits torch to one thread, so that sums are always computed in the same order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
