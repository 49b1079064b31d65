"""Functions in a pool of processes."""

import errno
import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from processes import child_processes
from transformer.errors import WorkerError
from transformer.runtime import pool as runtime_pool
from transformer.runtime.function_pool import FunctionPool
from transformer.runtime.pool import CAN_FORK

KILLED = "a worker process was killed, perhaps for lack of memory; use fewer"
Children = Callable[[], set[int]]
pytestmark = pytest.mark.skipif(not CAN_FORK, reason="processes are forked on Linux alone")


@pytest.fixture
def new_children() -> Children:
    """Returns the child processes that were started since the test began; others may belong to a browser."""
    known = set(child_processes())
    return lambda: set(child_processes()) - known


def worker_pid(number: int) -> tuple[int, int]:
    return number, os.getpid()


def test_items_are_read_a_few_ahead_and_answered_in_order(new_children: Children) -> None:
    """Catches a corpus that is read into memory, and a process that overtakes another."""
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    pool = FunctionPool(worker_pid, 2, "use fewer")
    results = pool.map(items(), ahead=3)
    assert len(taken) == 3
    numbers = [next(results)[0] for _ in range(2)]
    assert len(taken) == 5
    numbers += [number for number, _ in results]
    assert numbers == taken == list(range(50))
    assert list(pool.map([])) == []
    pool.close()
    assert not new_children()


def test_a_closed_pool_says_so() -> None:
    """Catches an error of the library, and a pool that starts again."""
    pool = FunctionPool(worker_pid, 1, "use fewer")
    results = pool.map(range(9), ahead=2)
    next(results)
    pool.close()
    for use in (lambda: list(results), lambda: list(pool.map([1]))):
        with pytest.raises(WorkerError, match="closed or replaced before this text was finished"):
            use()


def test_whoever_stops_early_leaves_no_process(new_children: Children) -> None:
    """Catches processes that outlive a caller that stops, or a text that cannot be read to its end."""

    def broken() -> Iterator[int]:
        yield from range(9)
        raise OSError("no more")

    pool = FunctionPool(worker_pid, 2, "use fewer")
    next(pool.map(range(50), ahead=4))  # nobody holds the iterator any more
    assert not pool.is_open
    for ahead in (4, None):
        pool = FunctionPool(worker_pid, 2, "use fewer")
        with pytest.raises(OSError, match="no more"):
            list(pool.map(broken(), ahead))
        assert not pool.is_open
    assert not new_children()


def test_ctrl_c_is_left_to_the_parent_and_a_killed_worker_replaced() -> None:
    """Catches workers that end with a traceback at the Ctrl-C that all processes get, and a pool that shrinks."""
    pool = FunctionPool(worker_pid, 1, "use fewer")
    ((_, pid),) = pool.map([0])
    os.kill(pid, signal.SIGINT)
    assert list(pool.map([1])) == [(1, pid)]
    os.kill(pid, signal.SIGKILL)
    ((_, other),) = pool.map([2])
    assert pool.pids == [other] != [pid]
    pool.close()


def die_once(file: str) -> str:
    """Ends the worker unless the file exists, which it writes."""
    if not Path(file).exists():
        Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return file


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_the_item_of_a_killed_worker_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_descriptors: bool
) -> None:
    """Catches a text that is lost with its worker, items in another order, and a system without `pidfd_open`."""
    if not has_descriptors:
        monkeypatch.setattr(os, "pidfd_open", refuse_fork)
    files = [str(tmp_path / name) for name in "abc"]
    for file in files[1:]:
        Path(file).touch()
    pool = FunctionPool(die_once, 1, "use fewer")
    assert list(pool.map(files)) == files
    pool.close()


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_every_text_is_told_that_workers_were_killed(new_children: Children) -> None:
    """Catches a text that was begun earlier and is told that the pool was closed, which hides the cause."""
    pool = FunctionPool(die, 1, "use fewer")
    earlier = pool.map([1, 2])
    for results in (pool.map([3]), earlier):
        with pytest.raises(WorkerError, match=KILLED):
            list(results)
    with pytest.raises(WorkerError, match=KILLED):
        pool.map([4])
    assert not pool.is_open
    assert not new_children()


def die_while_answering(number: int) -> bytes:
    """Ends the worker for item 0 after it has written half of its answer."""
    if number == 0:

        def write_half(stream: Any, message: Any, flags: int = 0) -> None:
            os.write(stream.fileno(), message[: len(message) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

        socket.socket.sendall = write_half
    return bytes(1000)


def test_a_worker_killed_while_it_answers_is_noticed(new_children: Children) -> None:
    """Catches a pool that waits for ever for the second half of a message."""
    with pytest.raises(WorkerError, match=KILLED):
        list(FunctionPool(die_while_answering, 2, "use fewer").map(range(4)))
    assert not new_children()


def test_large_items_and_results() -> None:
    """Catches a pool that waits until a worker has read an item while the worker waits until its result is read."""
    items = [bytes([number]) * 3_000_000 for number in range(8)]
    pool = FunctionPool(bytes.upper, 2, "use fewer")
    assert list(pool.map(items)) == items
    pool.close()


def test_a_pool_that_nobody_holds_ends(new_children: Children) -> None:
    """Catches processes of models that are not used any more."""
    pool = FunctionPool(worker_pid, 1, "use fewer")
    ((_, pid),) = pool.map([0])
    assert new_children() == {pid}
    del pool
    gc.collect()
    assert not new_children()


class UnpicklableError(Exception):
    """An error that cannot be made from its arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def fail(number: int) -> int:
    raise ValueError(f"number {number}") if number else UnpicklableError("of ", "its own kind")


def test_errors_of_the_function_reach_the_caller() -> None:
    """Catches an error that loses its type, its message or its place, or that cannot be sent."""
    with pytest.raises(ValueError, match="number 1") as error:
        list(FunctionPool(fail, 1, "use fewer").map([1]))
    assert "in fail\n" in error.value.__notes__[0]
    with pytest.raises(RuntimeError, match="UnpicklableError: of its own kind"):
        list(FunctionPool(fail, 1, "use fewer").map([0]))


def raise_timeout(number: int) -> int:
    if number:
        raise TimeoutError("of the function itself")
    return number


def test_a_timeout_of_the_function_is_its_own() -> None:
    """Catches an error of the function that is taken for the pool's own waiting."""
    results = FunctionPool(raise_timeout, 1, "use fewer").map(range(2))
    assert next(results) == 0
    with pytest.raises(TimeoutError, match="of the function itself"):
        next(results)


def refuse_fork(*_: int) -> int:
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def refuse_thread(thread: Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("place", ["process", "thread"])
def test_processes_or_threads_that_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch, place: str, new_children: Children
) -> None:
    """Catches advice on paths and disk space, and an error of the library."""
    if place == "process":
        forks = iter([os.fork, refuse_fork])  # the second of two
        monkeypatch.setattr(os, "fork", lambda: next(forks)())
    else:
        monkeypatch.setattr(Thread, "start", refuse_thread)
    pool = FunctionPool(worker_pid, 2, "use fewer")
    message = r"does not let this program start the worker processes or their threads; use fewer, or raise its limit"
    with pytest.raises(WorkerError, match=message):
        list(pool.map([1, 2]))
    assert not pool.is_open
    assert not new_children()


def test_a_text_begun_before_a_fork_cannot_be_finished_after_it() -> None:
    """Catches a forked process that waits for ever for answers that only its parent receives."""
    pool = FunctionPool(worker_pid, 1, "use fewer")
    results = pool.map(range(9), ahead=2)
    next(results)
    child = os.fork()
    if not child:
        try:
            list(results)
        except WorkerError as error:
            os._exit(42 if "begun before its process was forked" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert len(list(results)) == 8, "the parent goes on"
    pool.close()


def test_a_process_that_was_forked_while_another_thread_forked_has_pools() -> None:
    """Catches a forked process that waits for ever for a lock that no thread of it holds."""
    runtime_pool._fork_lock.acquire()
    child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(42 if list(FunctionPool(abs, 1, "use fewer").map([-2])) == [2] else 1)
    runtime_pool._fork_lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42


def test_a_process_ends_although_its_pool_is_open() -> None:
    """Catches a process of multiprocessing that waits for ever for its idle workers when it ends."""
    code = """
import multiprocessing
from transformer.runtime.function_pool import FunctionPool
def work():
    global pool
    pool = FunctionPool(abs, 2, "use fewer")
    print(list(pool.map([-1, 2])), flush=True)
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
print(process.exitcode)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[1, 2]\n0\n", "")


def test_python_ends_in_silence_in_the_middle_of_the_results() -> None:
    """Catches an interpreter that waits for the rest of the items, or reports a pipe that is already closed."""
    code = """
from transformer.runtime.function_pool import FunctionPool
results = FunctionPool(abs, 2, "use fewer").map(iter(int, 1), ahead=3)
print(next(results))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")
