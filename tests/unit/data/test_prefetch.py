"""Prefetching: the same batches in the same order, and no thread left behind."""

import threading
from collections.abc import Iterator
from itertools import count

import pytest

from transformer.data.prefetch import prefetch


def running() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "prefetch"]


@pytest.mark.parametrize("depth", [1, 3])
def test_order_is_that_of_the_items(depth: int) -> None:
    """Catches batches out of order, and a last one that is lost."""
    with prefetch(range(17), lambda n: n * n, depth) as results:
        assert list(results) == [n * n for n in range(17)]
    assert not running()


def test_leaving_early_ends_the_thread_of_endless_items() -> None:
    """Catches a thread that waits forever on a full queue."""
    with prefetch(count(), str, 2) as results:
        assert next(iter(results)) == "0"
        assert running()
    assert not running()


def test_no_more_is_made_than_may_wait() -> None:
    """Catches a thread that runs ahead through the whole corpus."""
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for n in count():
            drawn.append(n)
            yield n

    with prefetch(items(), str, 3) as results:
        for _ in range(5):
            next(iter(results))
    assert len(drawn) <= 5 + 3 + 2


@pytest.mark.parametrize("in_make", [False, True])
def test_an_exception_comes_where_its_item_would(in_make: bool) -> None:
    """Catches an exception lost in the thread, after which training would wait forever."""

    def items() -> Iterator[int]:
        yield from (1, 2)
        if not in_make:
            raise ValueError("no third")
        yield 3

    def make(n: int) -> int:
        if n == 3:
            raise ValueError("no third")
        return n

    seen: list[int] = []
    with pytest.raises(ValueError, match="no third"), prefetch(items(), make) as results:
        seen.extend(results)
    assert not running()


def test_an_exception_of_the_reader_ends_the_thread() -> None:
    """Catches a thread that outlives a failed step."""

    def fail() -> None:
        with prefetch(count(), str) as results:
            raise RuntimeError(next(iter(results)))

    with pytest.raises(RuntimeError, match="0"):
        fail()
    assert not running()
