"""Lines to small tables of word numbers: what the fit of two lines is judged by."""

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_WORDS, MAX_VOCABULARY, STEM = 12, 4096, 6
# One sign at a time where words are not set apart: Thai, Lao, Burmese, Khmer, kana, Han.
WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+")
Numbers = NDArray[np.int32]
Weights = NDArray[np.float32]


@dataclass(frozen=True)
class Side:
    """One side of a corpus as numbers; 0 stands for no word.

    Attributes:
        words: (lines, MAX_WORDS) the rarest words of each line that occur more than once.
        marks: (lines, MAX_WORDS) the rarest words of each line that the other side knows too: numbers, names.
        lengths: (lines,) characters of each line.
        vocabulary: how many word numbers there are, 0 included.
    """

    words: Numbers
    marks: Numbers
    lengths: Weights
    vocabulary: int


@dataclass(frozen=True)
class Sides:
    """Both sides, and what it says when both lines hold a mark: log(1 + lines / lines that hold it)."""

    source: Side
    target: Side
    mark_weights: Weights


def number_words(source: Sequence[str], target: Sequence[str]) -> Sides:
    """Numbers the words of two lists of lines, which may differ in length."""
    known: dict[str, int] = {}
    texts = [_WordList.of(lines, known) for lines in (source, target)]
    counts = [np.bincount(text.words, minlength=len(known)) for text in texts]
    is_mark = np.fromiter((len(word) > 3 or word.isdigit() for word in known), bool, len(known))
    most = np.maximum(*counts)
    shared = np.where(is_mark & (counts[0] > 0) & (counts[1] > 0), most, 0)
    marks = _by_frequency(shared, len(known))
    weights = np.zeros(int(marks.max(initial=0)) + 1, np.float32)
    weights[marks] = np.log1p(min(len(source), len(target)) / np.maximum(most, 1))
    weights[0] = 0.0
    sides: list[Side] = []
    for lines, text, count in zip((source, target), texts, counts, strict=True):
        words = _by_frequency(np.where(count > 1, count, 0), MAX_VOCABULARY - 1)
        lengths = np.fromiter(map(len, lines), np.float32, len(lines))
        sides.append(Side(text.rarest(words), text.rarest(marks), lengths, int(words.max(initial=0)) + 1))
    return Sides(sides[0], sides[1], weights)


def _by_frequency(counts: NDArray[np.int64], most: int) -> Numbers:
    """Numbers from 1 for the most frequent words on; 0 for those that do not count."""
    order = np.argsort(-counts, kind="stable")[: min(most, int((counts > 0).sum()))]
    numbers = np.zeros(len(counts), np.int32)
    numbers[order] = np.arange(1, len(order) + 1)
    return numbers


@dataclass(frozen=True)
class _WordList:
    """The different words of each line, all in one row."""

    words: Numbers
    rows: Numbers
    n_lines: int

    @classmethod
    def of(cls, lines: Sequence[str], known: dict[str, int]) -> "_WordList":
        """Lower-cased and cut to `STEM` characters, which folds most endings; new words are added to `known`."""
        words, sizes = array("i"), array("i")
        for line in lines:
            stems = {word[:STEM] for word in WORD.findall(line.lower())}
            words.extend(known.setdefault(stem, len(known)) for stem in sorted(stems))
            sizes.append(len(stems))
        rows = np.repeat(np.arange(len(lines), dtype=np.int32), np.array(sizes, np.int32))
        return cls(np.array(words, np.int32), rows, len(lines))

    def rarest(self, numbers: Numbers) -> Numbers:
        """The highest numbers of each line."""
        values = numbers[self.words]
        rows, values = self.rows[values > 0], values[values > 0]
        order = np.lexsort((-values, rows))
        rows, values = rows[order], values[order]
        place = np.arange(len(rows)) - np.searchsorted(rows, rows)
        table = np.zeros((self.n_lines, MAX_WORDS), np.int32)
        first = place < MAX_WORDS
        table[rows[first], place[first]] = values[first]
        return table
