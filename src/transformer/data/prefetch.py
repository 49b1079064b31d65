"""Batches made ready while the model computes."""

import queue
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager
from typing import Final, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")
DEPTH: Final = 4


class _End:
    """Marks the end of the items, and carries the exception that brought it, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


@contextmanager
def prefetch(items: Iterable[T], make: Callable[[T], U], depth: int = DEPTH) -> Generator[Iterable[U]]:
    """Makes the next few of `items` in a background thread, in their order.

    What is drawn from `items` and what `make` does happens in the thread, so neither the planning of an epoch nor
    the reading of a batch holds up a step. An exception of either is raised where the item would have come. Leaving
    the context ends the thread; what it made beyond the last item taken is thrown away, so a run that goes on counts
    the batches it used, not those made.

        with prefetch(plan, source.fetch) as batches:
            for batch in batches: ...

    Args:
        items: what the batches are made from, e.g. arrays of example ids; may be endless.
        make: one of them to a batch.
        depth: how many may wait.
    """
    ahead = _Ahead[T, U](items, make, depth)
    ahead.thread.start()
    results = ahead.results()
    try:
        with closing(results):
            yield results
    finally:
        ahead.stop()


class _Ahead(Generic[T, U]):
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
        """Ends the thread; it may be waiting for room, so room is made until it has ended."""
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
