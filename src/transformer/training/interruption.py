"""Stopping on request: finish the step, save, leave; and leave all the same where that does not end."""

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
"""How long the program has to end by itself after a second signal, which it cannot while it hangs in a library."""


@dataclass
class Interruption:
    """Whether a signal has asked the run to stop, and which."""

    signal_number: int | None = None

    @property
    def requested(self) -> bool:
        """True from the first signal on."""
        return self.signal_number is not None

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as a shell reports it: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal_number or 0)


@contextmanager
def watch_signals(stop_seconds: float = 300.0) -> Generator[Interruption]:
    """Catches the first SIGINT or SIGTERM inside the block; a second one acts as usual, at once.

    Only a program's main thread can catch signals; in another one nothing is caught.

    Args:
        stop_seconds: after the first signal, the process ends without saving if the block lasts longer.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    previous = {number: signal.getsignal(number) or signal.SIG_DFL for number in SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        interruption.signal_number = number
        for each, handler in previous.items():
            signal.signal(each, handler)

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        with _hard_exit(stop_seconds):
            yield interruption
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _hard_exit(stop_seconds: float) -> Generator[None]:
    """Lets a thread see the signals as the system delivers them.

    Python calls a handler only between two of its own instructions, so a step that hangs inside a library would hold
    back both the first signal and the second.
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
    reason = "a second signal" if second else f"no end of the step within {stop_seconds:g} s of the signal"
    sys.stderr.write(f"stopped at once and without saving: {reason}\n")
    sys.stderr.flush()
    os._exit(128 + (second or first))


def _next_signal(reading: int, seconds: float | None) -> int | None:
    """The number of the next of our signals; 0 at the end of the block, None where the time is over."""
    ready, _, _ = select.select([reading], [], [], seconds)
    if not ready:
        return None
    content = os.read(reading, 1)
    if not content:
        return 0
    return content[0] if content[0] in SIGNALS else _next_signal(reading, seconds)
