"""Several searches at a time, each on its own thread: small products gain more from that than from sharing them."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, Lock, Thread

import torch

from transformer.decoding.engine import search_each
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.search import Request, Search
from transformer.protocols import Generates

Found = tuple[int, list[Hypothesis]]


def search_side_by_side(
    model: Generates,
    requests: Iterable[Request],
    search: Search,
    *,
    workers: int = 1,
    batch_tokens: int = 4096,
    device: torch.device | None = None,
) -> Iterator[Found]:
    """As `search_each`, by several workers that share torch's threads among them.

    A worker takes the next requests once it has room for them. The model is shared; it holds no state.

    Raises:
        Exception: what a worker raised; the others end with it.
    """
    if workers == 1:
        yield from search_each(model, requests, search, batch_tokens=batch_tokens, device=device)
        return
    shared, stop = _Shared(requests), Event()
    found: SimpleQueue[Found | BaseException | None] = SimpleQueue()

    def work(threads: int) -> None:
        own: list[int] = []
        try:
            torch.set_num_threads(threads)
            taken = shared.take(own, stop)
            for place, hypotheses in search_each(model, taken, search, batch_tokens=batch_tokens, device=device):
                found.put((own[place], hypotheses))
                if stop.is_set():
                    return
            found.put(None)
        except BaseException as error:
            found.put(error)

    with _all_threads_given_back() as threads:
        for _ in range(workers):
            Thread(target=work, args=(max(1, threads // workers),), daemon=True).start()
        working = workers
        try:
            while working:
                result = found.get()
                if isinstance(result, BaseException):
                    raise result
                if result is None:
                    working -= 1
                else:
                    yield result
        finally:
            stop.set()


class _Shared:
    """Requests that several workers take from."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._numbered = enumerate(requests)
        self._lock = Lock()

    def take(self, own: list[int], stop: Event) -> Iterator[Request]:
        """The requests that a worker gets; their numbers are added to `own`."""
        while not stop.is_set():
            with self._lock:
                numbered = next(self._numbered, None)
            if numbered is None:
                return
            own.append(numbered[0])
            yield numbered[1]


@contextmanager
def _all_threads_given_back() -> Generator[int]:
    """How many threads torch has; a worker that sets its own number sets that of threads to come, too."""
    threads = torch.get_num_threads()
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)
