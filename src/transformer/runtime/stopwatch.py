"""Time since the start of a command."""

import time
from collections.abc import Callable
from typing import Final

Clock = Callable[[], float]
"""Function that returns seconds since any fixed moment."""


class Stopwatch:
    """Measures the time since it was created.

    Attributes:
        clock: Clock that it reads.
        started: Reading of the clock at the start.
    """

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.clock: Final = clock
        self.started: Final = clock()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.started
