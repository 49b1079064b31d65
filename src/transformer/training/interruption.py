"""Stopping on a signal: finishes the step, saves and exits; a process that hangs is ended after a time limit."""

import os
import select
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SECOND_SIGNAL_SECONDS = 1.0
"""Seconds in which Python may handle a second signal itself, which is impossible while a library call hangs."""


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
        """Exit code that a shell expects, 128 + signal number: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal_number or 0)


@contextmanager
def watch_signals(stop_seconds: float = 300.0) -> Generator[Interruption]:
    """Catches the first SIGINT or SIGTERM inside the block; a second one has its usual effect immediately.

    Only the main thread can catch signals; in other threads, none are caught.

    Args:
        stop_seconds: Seconds after the first signal until the process is ended without saving.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    previous = {number: signal.getsignal(number) or signal.SIG_DFL for number in SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        interruption.signal_number = number
        for caught, handler in previous.items():
            signal.signal(caught, handler)

    for number in SIGNALS:
        signal.signal(number, handle)
    try:
        with _hard_exit(stop_seconds):
            yield interruption
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _hard_exit(stop_seconds: float) -> Generator[None]:
    """Watches for signals in a thread, which receives them as soon as the system delivers them.

    Python calls a handler only between two bytecode instructions, so a step that hangs inside a library would delay
    both the first and the second signal.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    previous = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(reading, stop_seconds), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _watch(reading: int, stop_seconds: float) -> None:
    first = _next_signal(reading, None)
    if not first:
        return
    second = _next_signal(reading, stop_seconds)
    if second and _next_signal(reading, SECOND_SIGNAL_SECONDS) == 0:
        return
    if second == 0:
        return
    reason = "a second signal" if second else f"the step did not end within {stop_seconds:g} s of the signal"
    sys.stderr.write(f"stopped immediately without saving: {reason}\n")
    sys.stderr.flush()
    os._exit(128 + (second or first))


def _next_signal(reading: int, seconds: float | None) -> int | None:
    """Returns the number of the next SIGINT or SIGTERM; 0 at the end of the block, None after the timeout."""
    ready, _, _ = select.select([reading], [], [], seconds)
    if not ready:
        return None
    content = os.read(reading, 1)
    if not content:
        return 0
    return content[0] if content[0] in SIGNALS else _next_signal(reading, seconds)
