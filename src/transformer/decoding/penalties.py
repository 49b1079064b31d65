"""What scores of hypotheses of different lengths are divided by before they are compared."""

from collections.abc import Callable

LengthPenalty = Callable[[int], float]
"""From |Y|, EOS counted, to a positive divisor of the sum of log-probabilities; it must not fall as |Y| grows."""


def paper_length_penalty(alpha: float) -> LengthPenalty:
    """((5 + |Y|) / 6)^alpha; 0 compares the sums themselves.

    Source: Wu et al. 2016, Eq. 14, which Vaswani et al. 2017, Sec. 6.1, use with alpha = 0.6.
    """
    return lambda length: ((5 + length) / 6) ** alpha


def length_normalization(alpha: float) -> LengthPenalty:
    """|Y|^alpha; 1 compares the mean log-probability a token.

    Source: Cho et al. 2014, "On the Properties of Neural Machine Translation", Sec. 4.2. `transformers` and
    fairseq call its exponent `length_penalty` and `lenpen`.
    """
    return lambda length: max(1, length) ** alpha
