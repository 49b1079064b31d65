"""What every search returns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """A translation found by a search.

    Attributes:
        tokens: without BOS and EOS.
        score: sum of the tokens' log-probabilities in nats, EOS included where it was reached; not divided by length.
        finished: EOS was reached; False means cut at the limit.
        value: what it is compared by, before the length penalty: the score, or what rules made of it.
        coverage: what is added after the length penalty, see `coverage_penalty`.
    """

    tokens: list[int]
    score: float
    finished: bool
    value: float
    coverage: float = 0.0

    @property
    def length(self) -> int:
        """|Y|: the tokens that the score sums over, EOS included."""
        return len(self.tokens) + self.finished
