"""Scores of pairs by models of both directions, to filter a corpus."""

from collections.abc import Sequence
from math import inf, isnan

from transformer.pipelines.translation.scoring import score_pairs
from transformer.pipelines.translation.translator import Translator


def dual_cross_entropies(
    forward: Translator, backward: Translator | None, pairs: Sequence[tuple[str, str]]
) -> list[float]:
    """Returns a score of each pair, in nats per token; lower is better, and it is infinite if a side is too long.

    With models of both directions it is the mean of both cross-entropies plus their difference: a pair is good if both
    models find it likely, and equally so. With one model it is its cross-entropy.

    Args:
        forward: Model from source to target.
        backward: Model from target to source; None without one.
        pairs: Pairs of a source and a target text.

    Source: Junczys-Dowmunt 2018, "Dual Conditional Cross-Entropy Filtering of Noisy Parallel Corpora".
    """
    directions = [_cross_entropies(forward, pairs)]
    if backward is not None:
        directions.append(_cross_entropies(backward, [(target, source) for source, target in pairs]))
    pairs_of_scores = zip(*directions, strict=True)
    return [
        inf if inf in scores else sum(scores) / len(scores) + max(scores) - min(scores) for scores in pairs_of_scores
    ]


def _cross_entropies(translator: Translator, pairs: Sequence[tuple[str, str]]) -> list[float]:
    scores = (-scored.per_token for scored in score_pairs(translator, pairs))
    return [inf if isnan(score) else score for score in scores]
