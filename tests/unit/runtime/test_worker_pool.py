"""The pool of worker processes, in real processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from transformer.errors import WorkerError
from transformer.runtime.worker_pool import CAN_FORK, WorkerPool

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="processes are forked on Linux alone")


def worker_pid(number: int) -> tuple[int, int]:
    return number, os.getpid()


def test_items_are_read_a_few_ahead_and_answered_in_order() -> None:
    """Catches a corpus that is read into memory, and a process that overtakes another."""
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    pool = WorkerPool(worker_pid, 2, "use fewer")
    results = pool.map(items(), ahead=3)
    assert len(taken) == 3
    numbers = [next(results)[0] for _ in range(2)]
    assert len(taken) == 5
    numbers += [number for number, _ in results]
    assert numbers == taken == list(range(50))
    assert list(pool.map([])) == []
    pool.close()
    assert not multiprocessing.active_children()


def test_a_closed_pool_says_so() -> None:
    """Catches an error of the library, and a pool that starts again."""
    pool = WorkerPool(worker_pid, 1, "use fewer")
    results = pool.map(range(9), ahead=2)
    next(results)
    pool.close()
    for use in (lambda: list(results), lambda: list(pool.map([1]))):
        with pytest.raises(WorkerError, match="closed or replaced before this text was finished"):
            use()


def test_whoever_stops_early_leaves_no_process() -> None:
    """Catches processes that outlive a caller that stops, or a text that cannot be read to its end."""

    def broken() -> Iterator[int]:
        yield from range(9)
        raise OSError("no more")

    pool = WorkerPool(worker_pid, 2, "use fewer")
    next(pool.map(range(50), ahead=4))  # nobody holds the iterator any more
    assert not pool.is_open
    for ahead in (4, None):
        pool = WorkerPool(worker_pid, 2, "use fewer")
        with pytest.raises(OSError, match="no more"):
            list(pool.map(broken(), ahead))
        assert not pool.is_open
    assert not multiprocessing.active_children()


def test_ctrl_c_is_left_to_the_parent() -> None:
    """Catches workers that end with a traceback at the Ctrl-C that the terminal sends to all processes."""
    pool = WorkerPool(worker_pid, 1, "use fewer")
    ((_, pid),) = pool.map([0])
    os.kill(pid, signal.SIGINT)
    assert list(pool.map([1])) == [(1, pid)]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="a worker process was killed, perhaps for lack of memory; use fewer"):
        list(pool.map([2]))
    assert not multiprocessing.active_children()


def test_python_ends_in_silence_in_the_middle_of_the_results() -> None:
    """Catches an interpreter that waits for the rest of the items, or reports a pipe that is already closed."""
    code = """
from transformer.runtime.worker_pool import WorkerPool
results = WorkerPool(abs, 2, "use fewer").map(iter(int, 1), ahead=3)
print(next(results))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")
