"""Script and language of lines, by the scripts of Unicode and by character trigrams learned from the corpus itself."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer.text.languages import HAN, KANA, SCRIPTS, code_points, script_indices, script_name

CHUNK_LINES, BUCKETS = 4096, 1 << 16
Values = NDArray[np.float64]

MERGED_INDICES = np.array([SCRIPTS.index(HAN if script == KANA else script) for script in SCRIPTS])
"""Indices of scripts; kana count as Chinese characters, with which they are mixed in ordinary text."""
USUAL_SHARE, MIN_LETTERS = 0.01, 3


def main_scripts(lines: Sequence[str]) -> list[str]:
    """Returns the script of most letters of each line; an empty string if it has fewer than `MIN_LETTERS`."""
    scripts: list[str] = []
    for chunk in _chunks(lines):
        codes, rows = _codes(chunk)
        kinds = MERGED_INDICES[script_indices(codes)]
        table = np.bincount(rows * len(SCRIPTS) + kinds, minlength=len(chunk) * len(SCRIPTS))
        table = table.reshape(len(chunk), -1)
        table[:, 0] = MIN_LETTERS - 1  # "" wins unless a script has more
        scripts += [SCRIPTS[index] for index in table.argmax(1).tolist()]
    return scripts


def unusual_scripts(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yields rows in a script that occurs in less than 1 % of the lines of their side, with the usual scripts."""
    scripts = main_scripts(lines)
    counts = Counter(filter(None, scripts))
    usual = {script for script, count in counts.items() if count >= USUAL_SHARE * counts.total()}
    for row, script in enumerate(scripts):
        if script and script not in usual:
            yield row, f"{_name(script)}, not {' or '.join(sorted(map(_name, usual)))}"


@dataclass(frozen=True)
class LanguageModel:
    """A character trigram model of one side; trigrams are hashed to `BUCKETS` counters."""

    counts: Values

    @classmethod
    def learn(cls, lines: Sequence[str]) -> "LanguageModel":
        """Counts the trigrams of all lines."""
        counts = np.zeros(BUCKETS)
        for chunk in _chunks(lines):
            counts += np.bincount(_trigrams(chunk)[0], minlength=BUCKETS)
        return cls(counts)

    def log_probabilities(self, *, leave_one_out: bool) -> Values:
        """Returns the log probability of each trigram, optionally without one occurrence, that of the scored line."""
        seen = np.maximum(self.counts - leave_one_out, 0) + 0.5
        return np.log(seen / (self.counts.sum() + 0.5 * BUCKETS))


def language_odds(
    lines: Sequence[str], same_side: LanguageModel, other_side: LanguageModel
) -> tuple[Values, Values, Values]:
    """Scores the language of each line.

    Returns:
        For each line, the log odds of the language of its side against that of the other side, the number of trigrams,
        and the mean log probability under the better of the two models.
    """
    same_table = same_side.log_probabilities(leave_one_out=True)
    other_table = other_side.log_probabilities(leave_one_out=False)
    odds: list[Values] = []
    sizes: list[Values] = []
    best: list[Values] = []
    for chunk in _chunks(lines):
        trigrams, rows = _trigrams(chunk)
        same, other = (
            np.bincount(rows, table[trigrams], len(chunk)).astype(float) for table in (same_table, other_table)
        )
        counts = np.bincount(rows, minlength=len(chunk)).astype(float)
        odds.append(same - other)
        sizes.append(counts)
        best.append(np.maximum(same, other) / np.maximum(counts, 1))
    return np.concatenate(odds), np.concatenate(sizes), np.concatenate(best)


def _name(script: str) -> str:
    return "Han or kana" if script == HAN else script_name(script)


def _chunks(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(lines), CHUNK_LINES):
        yield lines[start : start + CHUNK_LINES]


def _codes(lines: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the code points of all lines, and the row of each code point."""
    return code_points("".join(lines)), np.repeat(np.arange(len(lines)), [len(line) for line in lines])


def _trigrams(lines: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the bucket and the row of every trigram; all digits are treated alike, and line ends as spaces."""
    codes, rows = _codes([f" {line.lower()} " for line in lines])
    codes = np.where((codes >= 0x30) & (codes <= 0x39), 0x30, codes)
    inside = rows[2:] == rows[:-2]
    keys = (codes[:-2] * 0x9E3779B1 + codes[1:-1] * 0x85EBCA6B + codes[2:] * 0xC2B2AE35) & 0xFFFFFFFF
    return ((keys * 0x9E3779B1 & 0xFFFFFFFF) >> 16)[inside], rows[2:][inside]
