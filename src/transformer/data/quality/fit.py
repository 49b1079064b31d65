"""How well two lines fit each other: log odds that they belong together, learned from the corpus itself."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer.data.quality.words import Sides

CHUNK_PAIRS, NEWTON_STEPS, RIDGE = 8192, 12, 1e-2
Rows = NDArray[np.integer[Any]]
Flags = NDArray[np.bool_]
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Pairs:
    """Which source row stands with which target row.

    Attributes:
        source: row numbers.
        target: row numbers, one for each.
        learned: whether the model learned from this very pair, whose own evidence is then left out.
    """

    source: Rows
    target: Rows
    learned: Flags


@dataclass(frozen=True)
class FitModel:
    """What the lines of one side say about the lines of the other.

    The words of a pair are judged by how much more often they met in the learned pairs than chance has it, its shared
    marks by their rarity, its lengths by their ratio. A logistic regression against randomly paired lines weighs the
    three, so that a score is a log odds: 0 is undecided, above fits, below does not.

    Source: word association in the manner of Melamed 2000 (best partner of each word); lengths, Gale & Church 1993.

    Attributes:
        together: (source words, target words) pairs in which both occur.
        source_counts: pairs in which a source word occurs.
        target_counts: pairs in which a target word occurs.
        n_pairs: pairs learned from.
        log_ratio: median of log(target length / source length).
        weights: of the features and a constant.
        separation: chance that a learned pair scores above a random one: 0.5 says that nothing was learned.
    """

    together: NDArray[np.float32]
    source_counts: NDArray[np.float32]
    target_counts: NDArray[np.float32]
    n_pairs: int
    log_ratio: float
    weights: Scores
    separation: float

    def log_odds(self, sides: Sides, pairs: Pairs) -> Scores:
        """The fit of each pair, in nats."""
        return _with_constant(self.features(sides, pairs)) @ self.weights

    def features(self, sides: Sides, pairs: Pairs) -> Scores:
        """(pairs, 6): what speaks for a pair.

        Association as a sum over the root of the words and as a mean over the words; the rarity of shared marks; how
        far the lengths are apart; the words of the shorter line, alone and by the mean: a line of one word without a
        known partner says little, a line of ten says much.
        """
        parts = [
            self._features(sides, Pairs(pairs.source[cut], pairs.target[cut], pairs.learned[cut]))
            for cut in _chunks(len(pairs.source))
        ]
        return np.concatenate(parts) if parts else np.zeros((0, 6))

    def _features(self, sides: Sides, pairs: Pairs) -> Scores:
        source, target = sides.source.words[pairs.source], sides.target.words[pairs.target]
        by_target, by_source = self._best_partners(source, target, pairs.learned)
        n_source, n_target = (source > 0).sum(1), (target > 0).sum(1)
        total = (by_source + by_target) / np.sqrt(np.maximum(n_source + n_target, 1))
        mean = by_source / np.maximum(n_source, 1) + by_target / np.maximum(n_target, 1)
        source, target = sides.source.marks[pairs.source], sides.target.marks[pairs.target]
        equal = (source[:, :, None] == target[:, None, :]).any(2)
        marks = (sides.mark_weights[source] * equal).sum(1)
        ratio = _log_ratio(sides, pairs) - self.log_ratio
        size = np.log1p(np.minimum(n_source, n_target))
        return np.stack([total, mean, marks, -np.abs(ratio), size, size * mean], axis=1)

    def _best_partners(self, source: Rows, target: Rows, learned: Flags) -> tuple[Scores, Scores]:
        """The sums over target words of the best source word's association, and the other way round."""
        own = learned.astype(np.float32)
        met = self.together[source[:, :, None], target[:, None, :]] - own[:, None, None]
        by_chance = (self.source_counts[source] - own[:, None])[:, :, None] / self.n_pairs
        by_chance = by_chance * (self.target_counts[target] - own[:, None])[:, None, :]
        is_word = (source > 0)[:, :, None] & (target > 0)[:, None, :]
        more = np.where(is_word, (met + 1) / (by_chance + 1), 1)  # the added pair keeps rare words from being trusted
        association = np.log(np.maximum(more, 1))
        return association.max(1).sum(1, dtype=np.float64), association.max(2).sum(1, dtype=np.float64)


def learn_fit(sides: Sides, source: Rows, target: Rows, seed: int = 0) -> FitModel:
    """Learns from rows that are taken for pairs; many of them may be wrong, as long as enough are right."""
    everything = Pairs(source, target, np.ones(len(source), bool))
    together = np.zeros(sides.source.vocabulary * sides.target.vocabulary, np.float32)
    for cut in _chunks(len(source)):
        words = sides.source.words[source[cut]][:, :, None], sides.target.words[target[cut]][:, None, :]
        keys = (words[0].astype(np.int64) * sides.target.vocabulary + words[1])[(words[0] > 0) & (words[1] > 0)]
        keys, counts = np.unique(keys, return_counts=True)
        together[keys] += counts
    model = FitModel(
        together.reshape(sides.source.vocabulary, -1),
        _counts(sides.source.words[source], sides.source.vocabulary),
        _counts(sides.target.words[target], sides.target.vocabulary),
        len(source),
        float(np.median(_log_ratio(sides, everything))),
        np.zeros(7),
        0.5,
    )
    return _calibrated(model, sides, everything, np.random.default_rng(seed))


def _calibrated(model: FitModel, sides: Sides, pairs: Pairs, generator: np.random.Generator) -> FitModel:
    """The model with weights that tell its pairs from rows paired at random."""
    shuffled = Pairs(pairs.source, generator.permutation(pairs.target), np.zeros(len(pairs.source), bool))
    real, random = (_with_constant(model.features(sides, chosen)) for chosen in (pairs, shuffled))
    weights = _logistic_regression(np.concatenate([real, random]), np.repeat([1.0, 0.0], len(real)))
    separation = _chance_above(real @ weights, random @ weights)
    return replace(model, weights=weights, separation=separation)


def _logistic_regression(features: Scores, display_names: Scores) -> Scores:
    """Newton's method with a little ridge, so that separable data end too."""
    weights = np.zeros(features.shape[1])
    for _ in range(NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
        curvature = (features * (chance * (1 - chance))[:, None]).T @ features + RIDGE * np.eye(len(weights))
        weights += np.linalg.solve(curvature, features.T @ (display_names - chance) - RIDGE * weights)
    return weights


def _chance_above(real: Scores, random: Scores) -> float:
    """The chance that one of `real` is above one of `random`, ties counted half."""
    ordered = np.sort(random)
    below = np.searchsorted(ordered, real, "left") + np.searchsorted(ordered, real, "right")
    return float(below.mean() / (2 * len(random)))


def _chunks(n: int) -> list[slice]:
    return [slice(start, min(start + CHUNK_PAIRS, n)) for start in range(0, n, CHUNK_PAIRS)]


def _counts(words: NDArray[np.int32], vocabulary: int) -> NDArray[np.float32]:
    return np.bincount(words.ravel(), minlength=vocabulary).astype(np.float32)


def _log_ratio(sides: Sides, pairs: Pairs) -> NDArray[np.float32]:
    """log(target length / source length) in characters, 5 added to each so that one-word lines do not dominate."""
    return np.log((sides.target.lengths[pairs.target] + 5) / (sides.source.lengths[pairs.source] + 5))


def _with_constant(features: Scores) -> Scores:
    return np.column_stack([features, np.ones(len(features))])
