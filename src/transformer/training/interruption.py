"""Stopping on a signal: finishes the step, saves and exits; a process that hangs is ended after a time limit."""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the signal of batch systems, and that of a terminal or connection that closes."""
SECOND_SIGNAL_SECONDS = 1.0
"""Seconds in which Python may handle a second signal itself, which is impossible while a library call hangs."""
REPEAT_SECONDS = 2.0
"""Seconds in which a launcher passes on to its ranks a signal that they have received themselves."""


@dataclass
class Interruption:
    """The signal that requested the run to stop, if any.

    Attributes:
        signal_number: Number of the signal; None before the first.
    """

    signal_number: int | None = None

    @property
    def requested(self) -> bool:
        """Whether a signal has been received."""
        return self.signal_number is not None

    @property
    def exit_code(self) -> int:
        """Exit code that a shell expects, 128 + signal number: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
        return 128 + (self.signal_number or 0)


@contextmanager
def watch_signals(stop_seconds: float = 300.0, repeat_seconds: float = 0.0) -> Generator[Interruption]:
    """Catches the first SIGINT, SIGTERM or SIGHUP inside the block; a second one has its usual effect immediately.

    Only the main thread can catch signals; in other threads, none are caught. A SIGHUP that the process was started to
    ignore, as by `nohup`, stays ignored.

    Args:
        stop_seconds: Seconds after the first signal until the process is ended without saving.
        repeat_seconds: Seconds after the first signal in which further ones count as the same.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    previous = {number: signal.getsignal(number) or signal.SIG_DFL for number in SIGNALS}
    if previous[signal.SIGHUP] == signal.SIG_IGN:
        del previous[signal.SIGHUP]
    repeats_until: float | None = None

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal repeats_until
        is_first = repeats_until is None
        if repeats_until is None:
            interruption.signal_number, repeats_until = number, time.monotonic() + repeat_seconds
        if time.monotonic() >= repeats_until:
            restore()
            if not is_first:
                signal.raise_signal(number)

    for number in previous:
        signal.signal(number, handle)
    try:
        with _hard_exit(stop_seconds, repeat_seconds):
            yield interruption
    finally:
        restore()


@contextmanager
def _hard_exit(stop_seconds: float, repeat_seconds: float) -> Generator[None]:
    """Watches for signals in a thread, which receives them as soon as the system delivers them.

    Python calls a handler only between two bytecode instructions, so a step that hangs inside a library would delay
    both the first and the second signal.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    previous = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(reading, stop_seconds, repeat_seconds), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _watch(reading: int, stop_seconds: float, repeat_seconds: float) -> None:
    first = _next_signal(reading, None)
    if not first:
        return
    received = time.monotonic()
    second = _next_signal(reading, received + stop_seconds)
    while second and time.monotonic() < received + repeat_seconds:
        second = _next_signal(reading, received + stop_seconds)
    if second == 0 or (second and _ends(reading, time.monotonic() + SECOND_SIGNAL_SECONDS)):
        return
    reason = "a second signal" if second else f"the step did not end within {stop_seconds:g} s of the signal"
    sys.stderr.write(f"stopped immediately without saving: {reason}\n")
    sys.stderr.flush()
    os._exit(128 + (second or first))


def _ends(reading: int, deadline: float) -> bool:
    """Whether the block ends before the deadline, however many signals arrive."""
    while number := _next_signal(reading, deadline):
        pass
    return number == 0


def _next_signal(reading: int, deadline: float | None) -> int | None:
    """Returns the number of the next of `SIGNALS`; 0 at the end of the block, None at the deadline."""
    seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
    ready, _, _ = select.select([reading], [], [], seconds)
    if not ready:
        return None
    content = os.read(reading, 1)
    if not content:
        return 0
    return content[0] if content[0] in SIGNALS else _next_signal(reading, deadline)
