"""Stopping on request: finish the step, save, leave."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
def watch_signals() -> Generator[Interruption]:
    """Catches the first SIGINT or SIGTERM inside the block; a second one acts as usual, at once.

    Only a program's main thread can catch signals; in another one nothing is caught.
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
        yield interruption
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
