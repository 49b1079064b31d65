"""What a run has reached: the counters that a checkpoint keeps and the loop moves."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from transformer.errors import DamageError


@dataclass(frozen=True)
class Position:
    """Which batch comes next; with the seed it decides what all following batches hold.

    Attributes:
        epoch: counted from 0.
        index: in the epoch's plan.
    """

    epoch: int = 0
    index: int = 0


@dataclass
class Window:
    """Sums over the updates since the last line of metrics.

    Attributes:
        steps: updates.
        tokens: scored tokens.
        loss_sum: their smoothed loss.
        seconds: they took.
    """

    steps: int = 0
    tokens: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0


@dataclass
class Progress:
    """What a run has reached.

    Attributes:
        step: updates done.
        position: of the next batch; ahead of the step where batches were skipped.
        examples: seen in updates.
        target_tokens: scored in updates.
        skipped_nonfinite: batches left out because a loss or gradient was not finite.
        skipped_unscored: batches left out because no token of them is scored.
        best_step: step of the best validation so far.
        best_score: its score, higher is better; None before the first.
        stale: validations since the best.
        leaders: steps of the best validations, best first, as many as `training.average_best` asks for.
        recent: steps of the last scheduled checkpoints, as many as `training.average_last` asks for.
        validations: step -> figures of its validation.
        window: of the line of metrics that is under way.
        seconds: training time so far, over all starts.
        finished: why the run ended: "max_steps", "patience"; None while it can go on.
    """

    # Strict JSON has no NaN, and a figure may be one.
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

    @property
    def scored_step(self) -> int | None:
        """Step of the last validation."""
        return max(self.validations, default=None)

    @property
    def scores(self) -> dict[str, float]:
        """Figures of the last validation."""
        return self.validations.get(self.scored_step or 0, {})

    @property
    def best_scores(self) -> dict[str, float]:
        """Figures of the best validation."""
        return self.validations.get(self.best_step or 0, {})

    @property
    def needed_steps(self) -> set[int]:
        """The steps, besides this one, whose checkpoints must be kept."""
        best = set[int]() if self.best_step is None else {self.best_step}
        return best | {*self.leaders, *self.recent}

    def to_json(self) -> dict[str, Any]:
        """The same as plain values of JSON."""
        return json.loads(ADAPTER.dump_json(self))

    @classmethod
    def from_json(cls, values: Any) -> "Progress":
        """Reads what `to_json` gave.

        Raises:
            DamageError: a counter is missing, unknown or of another kind.
        """
        try:
            progress = ADAPTER.validate_python(values)
        except ValidationError as error:
            first = error.errors()[0]
            raise DamageError(f"progress.{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        missing = asdict(cls()).keys() - values.keys()
        if missing:
            raise DamageError(f"progress.{min(missing)} is missing")
        return progress


ADAPTER = TypeAdapter(Progress)
