"""Progress of a run: counters that the loop updates and checkpoints store."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from transformer.config import describe_problems
from transformer.errors import DamageError


@dataclass(frozen=True)
class Position:
    """Position of the next batch in the data; together with the seed it determines all following batches.

    Attributes:
        epoch: Number of the epoch, from 0.
        index: Index of the batch in the plan of the epoch.
    """

    epoch: int = 0
    index: int = 0


@dataclass
class Window:
    """Sums over the updates since the last line of metrics.

    Attributes:
        steps: Number of updates.
        tokens: Number of scored tokens.
        loss_sum: Smoothed loss summed over the scored tokens.
        seconds: Duration of the updates.
    """

    steps: int = 0
    tokens: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Refit:
    """Changed length of a run whose time is limited, because its updates are slower or faster than planned.

    Attributes:
        step: Number of updates done when the length was changed.
        position: Step of the planned schedule that the run had reached.
        last: Number of updates of the run from then on.
        planned: Number of updates of the plan.
    """

    step: int
    position: float
    last: int
    planned: int


@dataclass
class Progress:
    """Counters and scores of a run.

    Attributes:
        step: Number of updates done.
        position: Position of the next batch, which is ahead of the step if batches were skipped.
        examples: Number of examples seen in updates.
        target_tokens: Number of tokens scored in updates.
        skipped_nonfinite: Number of batches skipped because a loss or gradient was not finite.
        skipped_unscored: Number of batches skipped because none of their tokens is scored.
        best_step: Step of the best validation so far; None before the first.
        best_score: Score of the best validation so far, where higher is better; None before the first.
        stale: Number of validations since the best.
        leaders: Steps of the best validations, best first, as many as `training.average_best` requires.
        recent: Steps of the last scheduled checkpoints, as many as `training.average_last` requires.
        validations: Scores of each validation by step.
        window: Sums for the next line of metrics.
        seconds: Training time so far, over all starts of the run.
        finished: Reason for the end of the run, "max_steps", "max_seconds" or "patience"; None while it can continue.
        refit: The last change of the length of the run; None without any.
        out_of_time: Value of `training.max_seconds` at which the clock ended the run; None if it did not.
    """

    # Strict JSON has no NaN, but a score may be NaN.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="strings", extra="forbid")

    step: int = 0
    position: Position = field(default_factory=Position)
    examples: int = 0
    target_tokens: int = 0
    skipped_nonfinite: int = 0
    skipped_unscored: int = 0
    best_step: int | None = None
    best_score: float | None = None
    stale: int = 0
    leaders: list[int] = field(default_factory=list)
    recent: list[int] = field(default_factory=list)
    validations: dict[int, dict[str, float]] = field(default_factory=dict)
    window: Window = field(default_factory=Window)
    seconds: float = 0.0
    finished: str | None = None
    refit: Refit | None = None
    out_of_time: float | None = None

    @property
    def scored_step(self) -> int | None:
        """Step of the last validation."""
        return max(self.validations, default=None)

    @property
    def scores(self) -> dict[str, float]:
        """Scores of the last validation."""
        return self.validations.get(self.scored_step or 0, {})

    @property
    def best_scores(self) -> dict[str, float]:
        """Scores of the best validation."""
        return self.validations.get(self.best_step or 0, {})

    @property
    def needed_steps(self) -> set[int]:
        """Earlier steps whose checkpoints must be kept."""
        best = set[int]() if self.best_step is None else {self.best_step}
        return best | {*self.leaders, *self.recent}

    def to_json(self) -> dict[str, Any]:
        """Converts the progress to JSON values."""
        return json.loads(ADAPTER.dump_json(self))

    @classmethod
    def from_json(cls, values: Any) -> "Progress":
        """Reads the values of `to_json`.

        Raises:
            DamageError: A counter is missing, unknown or of the wrong type.
        """
        try:
            progress = ADAPTER.validate_python(values)
        except ValidationError as error:
            raise DamageError(f"progress: {describe_problems(error)}") from error
        missing = asdict(cls()).keys() - values.keys() - LATER_FIELDS
        if missing:
            raise DamageError(f"progress.{min(missing)} is missing")
        return progress


LATER_FIELDS = {"refit", "out_of_time"}
"""Fields that checkpoints of earlier versions lack."""
ADAPTER = TypeAdapter(Progress)
