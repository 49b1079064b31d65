"""Preparation of batches in the background while the model computes."""

import queue
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager
from typing import Final, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")
DEPTH: Final = 4


class _End:
    """The end of the items, with the exception that caused it, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


@contextmanager
def prefetch(items: Iterable[T], make: Callable[[T], U], depth: int = DEPTH) -> Generator[Iterable[U]]:
    """Applies `make` to the next few items in a background thread, in order.

    Both the iteration over `items` and the calls of `make` happen in the thread, so neither the planning of an epoch
    nor the reading of a batch delays a step. An exception in the thread is raised where the affected item would
    have been returned. Leaving the context ends the thread and discards results that were not consumed; a run that is
    resumed therefore counts the batches it used, not those that were prepared.

        with prefetch(plan, dataset.fetch) as batches:
            for batch in batches: ...

    Args:
        items: Inputs of `make`, e.g. arrays of example ids; may be infinite.
        make: Function that turns an item into a batch.
        depth: Maximum number of batches prepared ahead.
    """
    prefetcher = _Prefetcher[T, U](items, make, depth)
    prefetcher.thread.start()
    results = prefetcher.results()
    try:
        with closing(results):
            yield results
    finally:
        prefetcher.stop()


class _Prefetcher(Generic[T, U]):
    def __init__(self, items: Iterable[T], make: Callable[[T], U], depth: int) -> None:
        self.thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)
        self._items, self._make = items, make
        self._ready: queue.Queue[U | _End] = queue.Queue(depth)
        self._stopped = threading.Event()

    def results(self) -> Generator[U]:
        while not isinstance(result := self._ready.get(), _End):
            yield result
        if result.error is not None:
            raise result.error

    def stop(self) -> None:
        """Ends the thread; empties the queue repeatedly, because the thread may be waiting to put a result."""
        self._stopped.set()
        while self.thread.is_alive():
            while not self._ready.empty():
                self._ready.get_nowait()
            self.thread.join(timeout=0.01)

    def _fill(self) -> None:
        end = _End()
        try:
            for item in self._items:
                if self._stopped.is_set():
                    break
                self._ready.put(self._make(item))
        except BaseException as error:
            end = _End(error)
        self._ready.put(end)
