"""The end of a run by the clock, and its length where updates turn out slower or faster than planned."""

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from transformer.runtime.stopwatch import Clock
from transformer.training.config import TrainingSettings
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.monitoring.progress import Progress, Refit
from transformer.training.optim.schedule import Schedule

TOLERANCE: Final = 0.05
"""Deviation of the remaining updates from those that fit, relative to them, from which the length is changed."""
MIN_MEASURED: Final = 3
"""Number of updates since the last validation from which their mean duration counts."""


@dataclass
class TimeLimit:
    """Measures a run against its time; without one, nothing ends or changes.

    Attributes:
        clock: Clock in seconds.
        deadline: Reading of the clock at which the last checkpoint should be saved.
        update: Seconds of an update, planned or measured since the last validation.
        validation: Seconds of the last validation, or planned.
        save: Seconds of the last checkpoint.
        longest: Largest number of updates to which a run may be extended; 0 if its length stays as it is.
    """

    clock: Clock = time.perf_counter
    deadline: float = math.inf
    update: float = 0.0
    validation: float = 0.0
    save: float = 0.0
    longest: int = 0
    _since: float = field(default=0.0, init=False)
    _paused: float = field(default=0.0, init=False)
    _updates: int = field(default=0, init=False)

    def begin(self) -> None:
        """Begins to measure updates."""
        self._since, self._paused, self._updates = self.clock(), 0.0, 0

    def count_update(self) -> None:
        """Adds an update to the mean, with all that was done since the one before, except for pauses."""
        self._updates += 1
        if self._updates >= MIN_MEASURED:
            self.update = (self.clock() - self._since - self._paused) / self._updates

    @contextmanager
    def validating(self) -> Generator[None]:
        """Measures a validation."""
        started = self.clock()
        yield
        self.validation = self.clock() - started
        self._paused += self.validation

    @contextmanager
    def saving(self) -> Generator[None]:
        """Measures a checkpoint."""
        started = self.clock()
        yield
        self.save = self.clock() - started
        self._paused += self.save

    def must_stop(self, context: DistributedContext) -> bool:
        """Whether another update, validation and checkpoint would end after the deadline; rank 0 decides."""
        if math.isinf(self.deadline):
            return False
        return context.broadcast(self.clock() + self.update + self.validation + self.save > self.deadline)

    def is_over(self, context: DistributedContext) -> bool:
        """Whether the deadline has passed, so that a validation has to be left out; rank 0 decides."""
        return not math.isinf(self.deadline) and context.broadcast(self.clock() >= self.deadline)

    def refit(self, progress: Progress, settings: TrainingSettings, context: DistributedContext) -> Refit | None:
        """Fits the remaining updates into the remaining time; None if they fit as they are. Rank 0 decides."""
        if math.isinf(self.deadline) or not self.longest or self._updates < MIN_MEASURED:
            return None
        last, interval = last_step(progress, settings), settings.validate_every
        pause = (self.validation + self.save) / interval if isinstance(interval, int) else 0.0
        left = self.deadline - self.clock() - self.update - self.validation - self.save  # as `must_stop` leaves it
        self.begin()
        fitting = max(1, int(left / (self.update + pause))) if self.update + pause else last - progress.step
        fitting = context.broadcast(min(fitting, max(1, self.longest - progress.step)))
        planned = last - progress.step
        if planned <= 0 or abs(fitting - planned) <= TOLERANCE * planned:
            return None
        position = schedule_position(progress.step, progress, settings)
        return Refit(progress.step, position, progress.step + fitting, settings.max_steps)


def last_step(progress: Progress, settings: TrainingSettings) -> int:
    """Returns the number of updates of the run: that of the last refit, unless `max_steps` was changed after it."""
    refit = progress.refit
    return refit.last if refit is not None and refit.planned == settings.max_steps else settings.max_steps


def schedule_position(step: int, progress: Progress, settings: TrainingSettings) -> float:
    """Returns the step at which the schedule is read: it is stretched so that it ends when the run does."""
    refit = progress.refit
    if refit is None or refit.planned != settings.max_steps:
        return float(step)
    return refit.position + (step - refit.step) * (refit.planned - refit.position) / (refit.last - refit.step)


def learning_rate(schedule: Schedule, step: int, progress: Progress, settings: TrainingSettings) -> float:
    """Returns the learning rate of an update, counted from 1."""
    return schedule(schedule_position(step, progress, settings))
