"""Reranking: the hypotheses of a search, ranked by a model of the other direction as well."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Final, NamedTuple

from transformer.decoding import Hypothesis, Search
from transformer.errors import ConfigError
from transformer.tokenizers.pair import TokenizerPair

RERANK_WEIGHT: Final = 0.25
"""Weight of the other direction without `Search.rerank_weight`; the best of 0.25, 0.5 and 1 on validation text."""


class ReverseScore(NamedTuple):
    """Score of a source given a translation.

    Attributes:
        score: Log-probability of the source's tokens in nats, EOS included; NaN if a side is too long for the model.
        length: Number of these tokens.
    """

    score: float
    length: int


ReverseScorer = Callable[[Sequence[tuple[str, str]]], Sequence[ReverseScore]]
"""Function from pairs of a translation and its source to the scores of the sources."""


@dataclass(frozen=True)
class Reranker:
    """Ranks hypotheses Y of a source X by log P(Y|X) / lp(Y) + weight * log P(X|Y) / lp(X), finished ones first.

    Each score is divided by the length penalty lp of its own length. With `length_normalization` they are means over
    tokens, as in Yee et al. 2019, "Simple and Effective Noisy Channel Modeling for Neural Machine Translation", but
    without a language model. Li et al. 2016, "A Diversity-Promoting Objective Function for Neural Conversation
    Models", divide neither. A translation that leaves out a part of its source makes the source improbable.

    Attributes:
        reverse: Scores by a model of the other direction.
        tokenizers: Tokenizers of the model that translates.
    """

    reverse: ReverseScorer
    tokenizers: TokenizerPair

    def rerank(
        self, sources: Sequence[Sequence[int]], results: Sequence[list[Hypothesis]], search: Search
    ) -> list[list[Hypothesis]]:
        """Returns the best hypotheses of each source; a source too long for the other model keeps its order.

        Args:
            sources: Source tokens.
            results: Hypotheses of each source.
            search: Search that found them.
        """
        decode_source, decode = self.tokenizers.source.decode, self.tokenizers.target.decode
        texts = [decode_source(tokens) for tokens in sources]
        pairs = [(decode(hyp.tokens), text) for text, hyps in zip(texts, results, strict=True) for hyp in hyps]
        scores = iter(self.reverse(pairs))
        return [_ranked(hypotheses, scores, search)[: search.n_best] for hypotheses in results]


def check_reranking(search: Search, task: str, *, has_reverse: bool) -> None:
    """Checks that the options of a translator allow what reranking needs.

    Args:
        search: Options of the search.
        task: Prefix of each line.
        has_reverse: Whether there is a model of the other direction.

    Raises:
        ConfigError: Reranking has no effect, or excludes another option.
    """
    if not has_reverse:
        if search.rerank_weight is not None:
            raise ConfigError("rerank_weight has no effect without rerank; name a model of the other direction there")
        return
    if search.beam == 1:
        raise ConfigError("rerank has no effect with beam=1, which has nothing to compare; choose e.g. beam=4")
    if search.mbr or search.coverage:
        other = "mbr" if search.mbr else "coverage"
        raise ConfigError(f"{other} and rerank both rank the hypotheses; leave out one of them")
    if task:
        raise ConfigError("rerank scores lines without the prefix of a task; leave one of them out")


def _ranked(hypotheses: list[Hypothesis], scores: Iterator[ReverseScore], search: Search) -> list[Hypothesis]:
    """Returns the hypotheses of one source, best first.

    Args:
        hypotheses: Hypotheses, best first by the search alone.
        scores: Scores of all sources; those of these hypotheses are taken.
        search: Search that found them.
    """
    reverse = [next(scores) for _ in hypotheses]
    if any(isnan(score) for score, _ in reverse):
        return hypotheses
    weight = RERANK_WEIGHT if search.rerank_weight is None else search.rerank_weight
    ranked = [
        replace(hypothesis, rerank_term=weight * score / search.length_penalty(length))
        for hypothesis, (score, length) in zip(hypotheses, reverse, strict=True)
    ]
    return sorted(ranked, key=lambda hyp: (not hyp.finished, -hyp.normalized_score(search.length_penalty)))
