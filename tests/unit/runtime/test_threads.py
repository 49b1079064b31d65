"""Threads of torch in forked processes."""

import os
from threading import Thread, active_count

import pytest
import torch

from transformer.errors import ConfigError
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
