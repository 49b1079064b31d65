"""Threads of torch: their cores, and their number in forked processes."""

import os
from pathlib import Path
from threading import Thread, active_count

import pytest
import torch

from transformer.errors import ConfigError
from transformer.kernels.library import library
from transformer.runtime import threads


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_process_has_one_thread() -> None:
    """Catches a process that shares work among threads that it lacks, and tokenizers that warn of them."""
    threads.prepare_threads()
    torch.set_num_threads(2)
    child = os.fork()
    if not child:
        os._exit(torch.get_num_threads() + 10 * (os.environ["TOKENIZERS_PARALLELISM"] == "false"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_gpu_is_refused_where_the_parent_has_used_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an error of torch, and a refusal in the parent or before the parent has used the GPU."""
    codes = list[int]()
    threads.prepare_threads()
    for is_initialized in (False, True):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda answer=is_initialized: answer)
        child = os.fork()
        if not child:
            try:
                threads.check_gpu()
            except ConfigError:
                os._exit(1)
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        threads.check_gpu()
    monkeypatch.setattr(threads, "_parent_used_gpu", False)
    assert codes == [0, 1]


def test_threads_are_set_but_refused_in_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a setting without effect, and one that would make the process hang."""
    chosen = list[int]()
    monkeypatch.setattr(threads.torch, "set_num_threads", chosen.append)
    for number in (2, 1):
        threads.set_threads(number, "training.threads")
    monkeypatch.setattr(threads, "_is_forked", True)
    threads.set_threads(1, "training.threads")
    assert chosen == [2, 1, 1]
    with pytest.raises(ConfigError, match=r"training.threads=2 does not work in a process forked from"):
        threads.set_threads(2, "training.threads")


def allowed_cores() -> list[str]:
    """Returns the cores of each thread of this process, as Linux reports them."""
    statuses = [(task / "status").read_text() for task in Path("/proc/self/task").iterdir()]
    return [line.split()[1] for text in statuses for line in text.splitlines() if line.startswith("Cpus_allowed_list")]


@pytest.mark.skipif(library() is None, reason="the kernels are off")
def test_threads_of_an_update_have_a_core_each_and_are_free_afterwards() -> None:
    """Catches threads that share a core, those that keep it, and threads that are started in between and inherit it."""
    cores, before = sorted(os.sched_getaffinity(0)), torch.get_num_threads()
    if len(cores) < 2:
        pytest.skip("needs two cores")
    free = allowed_cores()
    torch.set_num_threads(len(cores))
    try:
        with threads.own_cores():
            bound = allowed_cores()
            assert len(os.sched_getaffinity(0)) == 1
        assert os.sched_getaffinity(0) == set(cores)
        assert {str(core) for core in cores} <= set(bound)
        assert set(allowed_cores()) == set(free)
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not let a thread choose its cores")
def test_threads_that_leave_cores_to_others_are_not_bound() -> None:
    """Catches two programs of one thread each that are both kept on the first core."""
    cores, before = os.sched_getaffinity(0), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threads.own_cores():
            assert os.sched_getaffinity(0) == cores
    finally:
        torch.set_num_threads(before)


def test_threads_that_cannot_be_started_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the end of the process by the OpenMP library, and threads of the check that stay behind."""
    start, before, started = Thread.start, active_count(), list[Thread]()

    def start_three(thread: Thread) -> None:
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(Thread, "start", start_three)
    needed = 8 + threads.SPARE_THREADS
    message = (
        rf"training.threads=9 needs {needed} further threads, but the system lets this program start only 3; raise"
    )
    with pytest.raises(ConfigError, match=message):
        threads.set_threads(9, "training.threads")
    assert active_count() == before
