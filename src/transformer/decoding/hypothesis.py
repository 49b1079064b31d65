"""The result of a search."""

from dataclasses import dataclass

from transformer.options.length_penalties import LengthPenalty


@dataclass(frozen=True)
class Hypothesis:
    """An output sequence found by a search.

    Attributes:
        tokens: Generated tokens without BOS and EOS.
        score: Sum of the tokens' log-probabilities in nats, EOS included if it was reached; not divided by length.
        finished: Whether EOS was reached; False means truncated at the limit.
        ranking_score: Sum of the processed log-probabilities, by which hypotheses are compared before the length
            penalty; equals `score` if no logits processor applies.
        rerank_term: Term added after the length penalty, see `coverage_penalty` and `rerank`.
    """

    tokens: list[int]
    score: float
    finished: bool
    ranking_score: float
    rerank_term: float = 0.0

    @property
    def length(self) -> int:
        """The number |Y| of tokens that the score sums over, EOS included."""
        return len(self.tokens) + self.finished

    def normalized_score(self, length_penalty: LengthPenalty) -> float:
        """Returns ranking_score / length_penalty(|Y|) + rerank_term."""
        return self.ranking_score / length_penalty(self.length) + self.rerank_term
