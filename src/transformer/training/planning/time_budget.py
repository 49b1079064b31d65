"""Model and length of a run that has a given time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

VALIDATIONS: Final = 15
"""Number of validations of a run whose interval is not set."""
MAX_VALIDATION_SHARE: Final = 0.2
"""Largest share of the time that goes into validations and checkpoints."""
WARMUP_SHARE: Final = 0.1
"""Share of the updates that warm up, up to the 4,000 of Vaswani et al. 2017, Sec. 5.3."""
MAX_WARMUP: Final = 4000
SAVE_SECONDS: Final = 600
"""Longest time between checkpoints, all of which would be lost if the run were killed."""
MIN_UPDATES: Final = 10
"""Smallest number of updates that is worth a run."""
MARGIN: Final = 0.05
"""Share of the time that is left free, for updates that are slower than those that were measured."""


@dataclass(frozen=True)
class Costs:
    """Measured duration of the parts of a run, in seconds.

    Attributes:
        update: An update.
        validation: A validation and the checkpoint after it.
    """

    update: float
    validation: float


@dataclass(frozen=True)
class FittedLength:
    """Length of a run, in updates.

    Attributes:
        max_steps: The whole run.
        warmup_steps: Warm-up.
        validate_every: Interval between validations.
        save_every: Interval between checkpoints.
    """

    max_steps: int
    warmup_steps: int
    validate_every: int
    save_every: int


def fit_length(
    seconds: float, costs: Costs, longest: int, max_steps: int | None = None, validate_every: int | None = None
) -> FittedLength | None:
    """Fits the length of a run into a time, with a margin; None if not even `MIN_UPDATES` and a validation fit.

    There are `VALIDATIONS` validations, or fewer if they would take more than `MAX_VALIDATION_SHARE` of the time.

    Args:
        seconds: Time for updates, validations and checkpoints.
        costs: Their durations.
        longest: Maximum number of updates.
        max_steps: Number of updates, if it is set, whether or not it fits.
        validate_every: Interval between validations, if it is set.
    """
    usable = (1 - MARGIN) * seconds
    if usable < MIN_UPDATES * costs.update + costs.validation:
        return None
    affordable = int(MAX_VALIDATION_SHARE * usable / costs.validation) if costs.validation else VALIDATIONS
    count = max(1, min(VALIDATIONS, affordable))
    n_steps = max_steps or min(longest, _fitting_steps(usable, costs, count, validate_every))
    interval = validate_every or math.ceil(n_steps / count)
    return FittedLength(
        max_steps=n_steps,
        warmup_steps=max(1, min(MAX_WARMUP, round(WARMUP_SHARE * n_steps))),
        validate_every=interval,
        save_every=max(1, min(interval, int(SAVE_SECONDS / costs.update) if costs.update else interval)),
    )


def _fitting_steps(seconds: float, costs: Costs, validations: int, interval: int | None) -> int:
    """Returns the number of updates that fit beside a number of validations, or beside those at an interval."""
    if interval is None:
        return max(1, int((seconds - validations * costs.validation) / max(costs.update, 1e-9)))
    rounds = max(0, int(seconds / (interval * costs.update + costs.validation)))
    rest = seconds - rounds * (interval * costs.update + costs.validation) - costs.validation
    return max(1, rounds * interval + max(0, int(rest / max(costs.update, 1e-9))))


def predicted_loss(parameters: float, tokens: float) -> float:
    """Predicts the loss of a language model from the number of its parameters and of the tokens it is trained on.

    Source: Hoffmann et al. 2022, the parametric loss of their third approach, as fitted there.
    """
    return 1.69 + 406.4 / parameters**0.34 + 410.7 / tokens**0.28


def best_size(sizes: Mapping[str, tuple[float, float]]) -> str:
    """Returns the name of the model with the lowest `predicted_loss`; the first of equals.

    Args:
        sizes: Number of parameters outside the vocabulary, and of tokens for which the time is enough, by name.
    """
    return min(sizes, key=lambda name: predicted_loss(*sizes[name]))
