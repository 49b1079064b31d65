"""Line alignment of two files: the path over offsets that explains the corpus best."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer.data.quality.fit import FitModel, RowPairs, Scores, learn_fit
from transformer.data.quality.words import BitextWords, index_words

JUMP_NATS, MOST_NATS, NO_PARTNER_NATS = 15.0, 6.0, -3.0
ROUNDS, REACH, MOST_PROBED, MOST_NEW = 5, 40, 320, 8
PROBE_LINES, PROBES, PROBE_DEVIATIONS = 32, 16, 6.0
MIN_PAIRS, MIN_SEPARATION = 40, 0.75
WHOLE_SHIFTS = (1, -1, 2, -2, 3, -3)
"""Offsets of the whole file that are tried if the two sides do not fit under those at the start and at the end."""
SHIFT_LINES = 2000
"""Number of lines with which they are tried."""
Path = NDArray[np.int64]
Evidence = dict[int, Scores]


@dataclass(frozen=True)
class Alignment:
    """An alignment in which source row i belongs to target row i + base_offset + offsets[i].

    Attributes:
        offsets: Offset of each source row.
        fit: (n,) log odds that the two rows belong together, in nats; NaN where the target row does not exist.
        evidence: Log odds of every row by offset, for the offsets of the last iteration.
        separation: Probability that an aligned pair fits better than a random pair.
    """

    offsets: Path
    fit: Scores
    evidence: Evidence
    separation: float


def align(
    source: Sequence[str], target: Sequence[str], base_offset: int = 0, end: int | None = None
) -> Alignment | None:
    """Aligns two lists of lines that are translations of each other, except for lost or added lines.

    A model of the fit of two lines is learned from the pairs under the offsets at the start and at the end. The Viterbi
    algorithm finds the path over offsets with the best fit, and blocks that it does not explain are tried under other
    offsets. The model is then learned again from the pairs of the path, until the path no longer changes.

    Args:
        source: Source lines.
        target: Target lines.
        base_offset: Number of target rows before the partner of the first source row.
        end: Offset of the last row, if known.

    Returns:
        The alignment, or None if the lines are too few or unrelated.
    """
    search = _Aligner(index_words(source, target), base_offset, end)
    if alignment := search.align([0, *([end] if end else [])]):
        return alignment
    sides = source[:SHIFT_LINES], target[: SHIFT_LINES + max(0, base_offset)]
    beginning = _Aligner(index_words(*sides), base_offset, None)
    shift = next((offset for offset in WHOLE_SHIFTS if beginning.align([offset])), None)
    return None if shift is None else search.align([shift])


@dataclass(frozen=True)
class _Aligner:
    """The steps of `align` on indexed lines."""

    sides: BitextWords
    base_offset: int
    end: int | None

    def align(self, starts: Sequence[int]) -> Alignment | None:
        """Returns the alignment that is found from the pairs under some offsets; None if its pairs do not fit."""
        offsets = fixed = {0, self.end or 0, *starts}
        learned = [np.full(len(self.sides.source.lengths), offset) for offset in starts]
        rounds = 0
        while True:
            rounds += 1
            model = self.learn(learned)
            if model is None:
                return None
            evidence = {offset: self.score_offset(model, offset, learned) for offset in sorted(offsets)}
            path = self.best_path(evidence)
            new = self.probe_offsets(model, path, evidence) - offsets
            settled = len(learned) == 1 and bool((path == learned[0]).all())
            if rounds == ROUNDS or (settled and not new):
                is_reliable = model.separation >= MIN_SEPARATION
                return (
                    Alignment(path, _scores_along(evidence, path), evidence, model.separation) if is_reliable else None
                )
            offsets, learned = fixed | new | set(np.unique(path).tolist()), [path]

    def learn(self, paths: list[Path]) -> FitModel | None:
        """Learns the fit model from the pairs on the paths."""
        pairs = [self.pairs(path) for path in paths]
        source = np.concatenate([chosen.source for chosen in pairs])
        target = np.concatenate([chosen.target for chosen in pairs])
        return learn_fit(self.sides, source, target) if len(source) >= MIN_PAIRS else None

    def pairs(self, path: Path, learned: list[Path] | None = None) -> RowPairs:
        """Returns the pairs of a path, without rows that have no partner, and whether each pair was learned from."""
        is_learned = np.any([path == other for other in learned], axis=0) if learned else np.zeros(len(path), bool)
        source = np.arange(len(path))
        target = source + self.base_offset + path
        inside = (target >= 0) & (target < len(self.sides.target.lengths))
        return RowPairs(source[inside], target[inside], is_learned[inside])

    def score_offset(self, model: FitModel, offset: int, learned: list[Path]) -> Scores:
        """Returns the log odds of every row under one offset."""
        n = len(self.sides.source.lengths)
        pairs = self.pairs(np.full(n, offset), learned)
        scores = np.full(n, np.nan)
        scores[pairs.source] = model.log_odds(self.sides, pairs)
        return scores

    def best_path(self, evidence: Evidence) -> Path:
        """Returns the offset of each row by the Viterbi algorithm; any jump costs `JUMP_NATS`."""
        offsets = np.array(list(evidence))
        gains = np.stack([np.nan_to_num(scores, nan=NO_PARTNER_NATS) for scores in evidence.values()], axis=1)
        gains = np.clip(gains, -MOST_NATS, MOST_NATS)
        best = np.where(offsets == 0, 0.0, -JUMP_NATS)
        came_from = np.zeros(gains.shape, np.int16)
        stay = np.arange(len(offsets))
        for row, gain in enumerate(gains):
            highest = int(best.argmax())
            jumps = best < best[highest] - JUMP_NATS
            came_from[row] = np.where(jumps, highest, stay)
            best = np.where(jumps, best[highest] - JUMP_NATS, best) + gain
        if self.end is not None:
            best = best - JUMP_NATS * (offsets != self.end)
        return offsets[_trace_back(came_from, int(best.argmax()))]

    def probe_offsets(self, model: FitModel, path: Path, evidence: Evidence) -> set[int]:
        """Returns offsets with a conspicuously good fit in blocks that the path does not explain."""
        fit = np.nan_to_num(_scores_along(evidence, path), nan=NO_PARTNER_NATS).clip(-MOST_NATS, MOST_NATS)
        n_blocks = len(fit) // PROBE_LINES
        means = fit[: n_blocks * PROBE_LINES].reshape(n_blocks, PROBE_LINES).mean(1)
        poor = np.flatnonzero(means < 0)
        if len(poor) > PROBES:
            poor = poor[np.linspace(0, len(poor) - 1, PROBES).astype(int)]
        candidates = {self.outlying_offset(model, int(block) * PROBE_LINES) for block in poor}
        return set(sorted(offset for offset in candidates if offset is not None)[:MOST_NEW])

    def outlying_offset(self, model: FitModel, start: int) -> int | None:
        """Returns the offset under which a block of rows fits far better than under all others, or None."""
        end = self.end or 0
        offsets = np.arange(min(0, end) - REACH, max(0, end) + REACH + 1)
        if len(offsets) > MOST_PROBED:
            offsets = np.unique(np.linspace(offsets[0], offsets[-1], MOST_PROBED).astype(int))
        source = np.repeat(np.arange(start, start + PROBE_LINES), len(offsets))
        target = source + self.base_offset + np.tile(offsets, PROBE_LINES)
        last = len(self.sides.target.lengths) - 1
        pairs = RowPairs(source, target.clip(0, last), np.zeros(len(source), bool))
        scores = model.log_odds(self.sides, pairs).clip(-MOST_NATS, MOST_NATS)
        scores[(target < 0) | (target > last)] = NO_PARTNER_NATS
        means = scores.reshape(PROBE_LINES, -1).mean(0)
        spread = 1.4826 * np.median(np.abs(means - np.median(means)))  # estimates the standard deviation
        best = int(means.argmax())
        return int(offsets[best]) if means[best] > np.median(means) + PROBE_DEVIATIONS * spread else None


def _trace_back(came_from: NDArray[np.int16], state: int) -> Path:
    path = np.zeros(len(came_from), np.int64)
    for row in range(len(came_from) - 1, -1, -1):
        path[row] = state
        state = int(came_from[row, state])
    return path


def _scores_along(evidence: Evidence, path: Path) -> Scores:
    """Returns the scores on a path."""
    fit = np.full(len(path), np.nan)
    for offset, scores in evidence.items():
        fit = np.where(path == offset, scores, fit)
    return fit
