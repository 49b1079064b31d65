"""Signals during training, received by one process."""

import signal
import time
from collections.abc import Iterator

import pytest
import torch

from transformer.training import interruption as module
from transformer.training.distributed import process_group
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.interruption import Interruption, watch_signals


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a slow machine time to leave the block before the process is ended."""
    monkeypatch.setattr(module, "SECOND_SIGNAL_SECONDS", 600.0)


@pytest.fixture(autouse=True)
def _not_ignored() -> Iterator[None]:
    """Handles SIGHUP as usual, which `nohup` ignores for the whole test run."""
    handler = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_inside_a_collective_is_kept_for_the_next(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Catches a number that arrives while the rank waits, and that the result of the others overwrites."""
    context, calls = DistributedContext(rank=1, size=2), list[float]()

    def all_reduce(values: torch.Tensor, operation: object) -> None:
        if not calls:
            signal.raise_signal(number)
        calls.append(values.item())

    monkeypatch.setattr(process_group.dist, "all_reduce", all_reduce)
    with watch_signals() as interruption:
        assert not context.should_stop(interruption), "the other ranks go on, so this one must too"
        assert interruption.signal_number == number
        assert context.should_stop(interruption)
    assert calls == [0, number]


def test_a_number_from_another_rank_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a rank that stops with exit code 0 because only another one received the signal."""
    monkeypatch.setattr(process_group.dist, "all_reduce", lambda values, operation: values.fill_(15))
    interruption = Interruption()
    assert DistributedContext(rank=0, size=2).should_stop(interruption)
    assert interruption.exit_code == 143


def test_a_signal_that_the_launcher_repeats_counts_once() -> None:
    """Catches a run under Slurm that ends without saving: it and torchrun both send each rank a SIGTERM."""
    with watch_signals(repeat_seconds=600) as interruption:
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        assert interruption.exit_code == 143


@pytest.mark.parametrize("repeat_seconds", [0.0, 0.01])
def test_a_second_signal_stops_at_once(repeat_seconds: float) -> None:
    """Catches a run that cannot be stopped but by SIGKILL."""

    def interrupt_twice() -> None:
        with watch_signals(repeat_seconds=repeat_seconds):
            signal.raise_signal(signal.SIGINT)
            time.sleep(2 * repeat_seconds)
            signal.raise_signal(signal.SIGINT)

    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupt_twice()
    finally:
        signal.signal(signal.SIGINT, inherited)


def test_an_ignored_hangup_stays_ignored() -> None:
    """Catches a run under `nohup` that stops when its terminal closes."""
    inherited = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with watch_signals() as interruption:
            signal.raise_signal(signal.SIGHUP)
        assert not interruption.requested
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, inherited)
