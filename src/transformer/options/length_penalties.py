"""Length penalties: divisors that make the scores of hypotheses of different lengths comparable."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from transformer.errors import ConfigError

MAX_ALPHA: Final = 10
LengthPenalty = Callable[[int], float]
"""Maps |Y|, EOS counted, to a positive divisor of the sum of log-probabilities; it must not fall as |Y| grows."""


@dataclass(frozen=True)
class PaperLengthPenalty:
    """The penalty ((5 + |Y|) / 6)^alpha, see `paper_length_penalty`."""

    alpha: float

    def __call__(self, length: int) -> float:
        """Returns the divisor for a length."""
        return ((5 + length) / 6) ** self.alpha


@dataclass(frozen=True)
class LengthNormalization:
    """The penalty |Y|^alpha, see `length_normalization`."""

    alpha: float

    def __call__(self, length: int) -> float:
        """Returns the divisor for a length."""
        return max(1, length) ** self.alpha


def paper_length_penalty(alpha: float) -> LengthPenalty:
    """Returns the length penalty of GNMT, ((5 + |Y|) / 6)^alpha; alpha=0 compares the sums themselves.

    Raises:
        ConfigError: Alpha is below 0 or above 10.

    Source: Wu et al. 2016, Eq. 14, which Vaswani et al. 2017, Sec. 6.1, use with alpha = 0.6.
    """
    _check_alpha(alpha)
    return PaperLengthPenalty(alpha)


def length_normalization(alpha: float) -> LengthPenalty:
    """Returns the length normalization |Y|^alpha; alpha=1 compares the mean log-probability per token.

    Raises:
        ConfigError: Alpha is below 0 or above 10.

    Source: Cho et al. 2014, "On the Properties of Neural Machine Translation". `transformers` and
    fairseq call its exponent `length_penalty` and `lenpen`.
    """
    _check_alpha(alpha)
    return LengthNormalization(alpha)


def _check_alpha(alpha: float) -> None:
    if not 0 <= alpha <= MAX_ALPHA:
        raise ConfigError(f"alpha={alpha} is not between 0 and {MAX_ALPHA}; choose e.g. 0.6")
