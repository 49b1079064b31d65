"""Bitext scoring: the log odds that two lines are translations (their fit), learned from the corpus itself."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transformer.data.quality.words import BitextWords

CHUNK_PAIRS, NEWTON_STEPS, RIDGE = 8192, 12, 1e-2
Rows = NDArray[np.integer]
Flags = NDArray[np.bool_]
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class RowPairs:
    """Pairs of source and target rows.

    Attributes:
        source: Source row of each pair.
        target: Target row of each pair.
        learned: Whether the model learned from the pair; its own evidence is then excluded (leave-one-out).
    """

    source: Rows
    target: Rows
    learned: Flags


@dataclass(frozen=True)
class FitModel:
    """A model of how well a target line fits a source line.

    The words of a pair are scored by how much more often they occurred together in the learned pairs than by chance,
    its shared anchors by their rarity, and its lengths by their ratio. A logistic regression against randomly paired
    lines weights the three, so a score is a log odds: 0 is undecided, positive scores speak for the pair.

    Source: word association in the manner of Melamed 2000 (best partner of each word); lengths, Gale and Church 1993.

    Attributes:
        cooccurrences: (source words, target words) number of pairs in which both words occur.
        source_counts: Number of pairs in which each source word occurs.
        target_counts: Number of pairs in which each target word occurs.
        n_pairs: Number of pairs learned from.
        log_ratio: Median of log(target length / source length).
        weights: Weights of the features and a constant.
        separation: Probability that a learned pair scores above a random one; 0.5 means that nothing was learned.
    """

    cooccurrences: NDArray[np.float32]
    source_counts: NDArray[np.float32]
    target_counts: NDArray[np.float32]
    n_pairs: int
    log_ratio: float
    weights: Scores
    separation: float

    def log_odds(self, sides: BitextWords, pairs: RowPairs) -> Scores:
        """Returns the log odds of each pair, in nats."""
        return _with_constant(self.features(sides, pairs)) @ self.weights

    def features(self, sides: BitextWords, pairs: RowPairs) -> Scores:
        """Returns the features of each pair: shape (pairs, 6).

        The features are the association as a sum divided by the root of the number of words, and as a mean over the
        words; the rarity of shared anchors; the difference of the lengths; and the number of words of the shorter line,
        alone and multiplied by the mean. A line of one word without a known partner is weak evidence, a line of ten
        such words is strong evidence.
        """
        parts = [
            self._features(sides, RowPairs(pairs.source[cut], pairs.target[cut], pairs.learned[cut]))
            for cut in _chunks(len(pairs.source))
        ]
        return np.concatenate(parts) if parts else np.zeros((0, 6))

    def _features(self, sides: BitextWords, pairs: RowPairs) -> Scores:
        source, target = sides.source.words[pairs.source], sides.target.words[pairs.target]
        by_target, by_source = self._best_associations(source, target, pairs.learned)
        n_source, n_target = (source > 0).sum(1), (target > 0).sum(1)
        total = (by_source + by_target) / np.sqrt(np.maximum(n_source + n_target, 1))
        mean = by_source / np.maximum(n_source, 1) + by_target / np.maximum(n_target, 1)
        source, target = sides.source.anchors[pairs.source], sides.target.anchors[pairs.target]
        equal = (source[:, :, None] == target[:, None, :]).any(2)
        anchors = (sides.anchor_weights[source] * equal).sum(1)
        ratio = _log_ratio(sides, pairs) - self.log_ratio
        size = np.log1p(np.minimum(n_source, n_target))
        return np.stack([total, mean, anchors, -np.abs(ratio), size, size * mean], axis=1)

    def _best_associations(self, source: Rows, target: Rows, learned: Flags) -> tuple[Scores, Scores]:
        """Returns the sum over target words of the association with the best source word, and vice versa."""
        is_learned = learned.astype(np.float32)
        together = self.cooccurrences[source[:, :, None], target[:, None, :]] - is_learned[:, None, None]
        expected = (self.source_counts[source] - is_learned[:, None])[:, :, None] / self.n_pairs
        expected = expected * (self.target_counts[target] - is_learned[:, None])[:, None, :]
        is_word = (source > 0)[:, :, None] & (target > 0)[:, None, :]
        ratio = np.where(is_word, (together + 1) / (expected + 1), 1)  # add-one smoothing, for rare words
        association = np.log(np.maximum(ratio, 1))
        return association.max(1).sum(1, dtype=np.float64), association.max(2).sum(1, dtype=np.float64)


def learn_fit(sides: BitextWords, source: Rows, target: Rows) -> FitModel:
    """Learns from row pairs, many of which may be wrong as long as enough are right."""
    all_pairs = RowPairs(source, target, np.ones(len(source), bool))
    cooccurrences = np.zeros(sides.source.vocabulary * sides.target.vocabulary, np.float32)
    for cut in _chunks(len(source)):
        words = sides.source.words[source[cut]][:, :, None], sides.target.words[target[cut]][:, None, :]
        keys = (words[0].astype(np.int64) * sides.target.vocabulary + words[1])[(words[0] > 0) & (words[1] > 0)]
        keys, counts = np.unique(keys, return_counts=True)
        cooccurrences[keys] += counts
    model = FitModel(
        cooccurrences.reshape(sides.source.vocabulary, -1),
        _counts(sides.source.words[source], sides.source.vocabulary),
        _counts(sides.target.words[target], sides.target.vocabulary),
        len(source),
        float(np.median(_log_ratio(sides, all_pairs))),
        np.zeros(7),
        0.5,
    )
    return _calibrated(model, sides, all_pairs, np.random.default_rng(0))


def _calibrated(model: FitModel, sides: BitextWords, pairs: RowPairs, generator: np.random.Generator) -> FitModel:
    """Returns the model with weights that distinguish its pairs from rows paired at random."""
    shuffled = RowPairs(pairs.source, generator.permutation(pairs.target), np.zeros(len(pairs.source), bool))
    real, random = (_with_constant(model.features(sides, chosen)) for chosen in (pairs, shuffled))
    weights = _logistic_regression(np.concatenate([real, random]), np.repeat([1.0, 0.0], len(real)))
    separation = _auc(real @ weights, random @ weights)
    return replace(model, weights=weights, separation=separation)


def _logistic_regression(features: Scores, display_names: Scores) -> Scores:
    """Fits a logistic regression by Newton's method; ridge regularization keeps separable data finite."""
    weights = np.zeros(features.shape[1])
    for _ in range(NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
        curvature = (features * (chance * (1 - chance))[:, None]).T @ features + RIDGE * np.eye(len(weights))
        weights += np.linalg.solve(curvature, features.T @ (display_names - chance) - RIDGE * weights)
    return weights


def _auc(real: Scores, random: Scores) -> float:
    """Returns the AUC: the probability that a score of `real` is above one of `random`; ties count half."""
    ordered = np.sort(random)
    below = np.searchsorted(ordered, real, "left") + np.searchsorted(ordered, real, "right")
    return float(below.mean() / (2 * len(random)))


def _chunks(n: int) -> list[slice]:
    return [slice(start, min(start + CHUNK_PAIRS, n)) for start in range(0, n, CHUNK_PAIRS)]


def _counts(words: NDArray[np.int32], vocabulary: int) -> NDArray[np.float32]:
    return np.bincount(words.ravel(), minlength=vocabulary).astype(np.float32)


def _log_ratio(sides: BitextWords, pairs: RowPairs) -> NDArray[np.float32]:
    """Returns log(target length / source length) in characters, with 5 added to both for the sake of short lines."""
    return np.log((sides.target.lengths[pairs.target] + 5) / (sides.source.lengths[pairs.source] + 5))


def _with_constant(features: Scores) -> Scores:
    return np.column_stack([features, np.ones(len(features))])
