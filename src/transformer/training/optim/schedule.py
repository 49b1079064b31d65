"""Learning-rate schedules."""

import math
from collections.abc import Callable

from transformer.errors import ConfigError

Schedule = Callable[[float], float]


def paper_peak(d_model: int, warmup_steps: int) -> float:
    """Computes the peak of the Noam schedule, (d_model * warmup_steps)^-0.5, reached at the end of the warm-up.

    Source: Vaswani et al. 2017, Sec. 5.3, Eq. 3 at step = warmup_steps.
    """
    return (d_model * warmup_steps) ** -0.5


def paper_schedule(d_model: int, warmup_steps: int) -> Schedule:
    """Computes the Noam schedule, d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5); steps count from 1.

    Source: Vaswani et al. 2017, Sec. 5.3, Eq. 3.
    """
    return lambda step: d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def inverse_sqrt_schedule(peak: float, warmup_steps: int) -> Schedule:
    """Rises linearly to the peak, then falls with the inverse square root of the step, as in the paper."""
    return lambda step: peak * min(step / warmup_steps, math.sqrt(warmup_steps / step))


def cosine_schedule(peak: float, warmup_steps: int, decay_steps: int) -> Schedule:
    """Rises linearly to the peak, then falls to zero at `decay_steps` along half a cosine wave.

    If the warm-up takes `decay_steps` or longer, the rate is zero after it.

    Source: Loshchilov and Hutter 2017, Eq. 5, without restarts.
    """

    def rate(step: float) -> float:
        if step <= warmup_steps:
            return peak * step / warmup_steps
        progress = min(1.0, (step - warmup_steps) / max(1, decay_steps - warmup_steps))
        return peak * 0.5 * (1 + math.cos(math.pi * progress))

    return rate


def constant_schedule(peak: float, warmup_steps: int) -> Schedule:
    """Rises linearly to the peak (warm-up), then stays constant."""
    return lambda step: peak * min(1.0, step / warmup_steps)


def make_schedule(name: str, *, d_model: int, peak: float | None, warmup_steps: int, decay_steps: int) -> Schedule:
    """Creates a schedule by name; steps count from 1. If `peak` is None, it is `paper_peak(d_model, warmup_steps)`.

    Raises:
        ConfigError: The name is unknown, or a peak is set for the paper's schedule, which derives its own.
    """
    if name == "paper":
        if peak is not None:
            raise ConfigError(
                f"training.learning_rate={peak} has no meaning for schedule='paper', which derives it from d_model and "
                "warmup_steps; remove it or choose 'inverse_sqrt'"
            )
        return paper_schedule(d_model, warmup_steps)
    peak = paper_peak(d_model, warmup_steps) if peak is None else peak
    if name == "inverse_sqrt":
        return inverse_sqrt_schedule(peak, warmup_steps)
    if name == "cosine":
        return cosine_schedule(peak, warmup_steps, decay_steps)
    if name == "constant":
        return constant_schedule(peak, warmup_steps)
    raise ConfigError(f"training.schedule={name!r} is unknown; choose inverse_sqrt, paper, cosine or constant")
