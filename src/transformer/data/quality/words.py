"""Conversion of lines to small tables of word ids, from which the fit of two lines is estimated."""

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_WORDS, MAX_VOCABULARY, STEM = 12, 4096, 6
# Scripts without spaces between words are split into characters: Thai, Lao, Burmese, Khmer, kana, Han. They are ranges,
# since the properties of `regex` take 1.6 times as long.
WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+")
Numbers = NDArray[np.int32]
Weights = NDArray[np.float32]


@dataclass(frozen=True)
class SideWords:
    """The word ids of one side of a corpus; 0 is padding.

    Attributes:
        words: (lines, MAX_WORDS) rarest words of each line among those that occur more than once.
        anchors: (lines, MAX_WORDS) rarest words of each line that occur on both sides, such as numbers and names.
        lengths: (lines,) number of characters of each line.
        vocabulary: Number of word ids, 0 included.
    """

    words: Numbers
    anchors: Numbers
    lengths: Weights
    vocabulary: int


@dataclass(frozen=True)
class BitextWords:
    """The word ids of both sides, and the weight of a shared anchor: log(1 + lines / lines that contain it)."""

    source: SideWords
    target: SideWords
    anchor_weights: Weights


def index_words(source: Sequence[str], target: Sequence[str]) -> BitextWords:
    """Assigns ids to the words of two lists of lines, which may differ in length."""
    known: dict[str, int] = {}
    texts = [_WordList.of(lines, known) for lines in (source, target)]
    counts = [np.bincount(text.words, minlength=len(known)) for text in texts]
    is_anchor = np.fromiter((len(word) > 3 or word.isdigit() for word in known), bool, len(known))
    most = np.maximum(*counts)
    shared = np.where(is_anchor & (counts[0] > 0) & (counts[1] > 0), most, 0)
    anchors = _by_frequency(shared, len(known))
    weights = np.zeros(int(anchors.max(initial=0)) + 1, np.float32)
    weights[anchors] = np.log1p(min(len(source), len(target)) / np.maximum(most, 1))
    weights[0] = 0.0
    sides: list[SideWords] = []
    for lines, text, count in zip((source, target), texts, counts, strict=True):
        words = _by_frequency(np.where(count > 1, count, 0), MAX_VOCABULARY - 1)
        lengths = np.fromiter(map(len, lines), np.float32, len(lines))
        sides.append(SideWords(text.rarest(words), text.rarest(anchors), lengths, int(words.max(initial=0)) + 1))
    return BitextWords(sides[0], sides[1], weights)


def _by_frequency(counts: NDArray[np.int64], most: int) -> Numbers:
    """Assigns ids from 1 in descending order of frequency, and 0 to words beyond the limit or without a count."""
    order = np.argsort(-counts, kind="stable")[: min(most, int((counts > 0).sum()))]
    numbers = np.zeros(len(counts), np.int32)
    numbers[order] = np.arange(1, len(order) + 1)
    return numbers


@dataclass(frozen=True)
class _WordList:
    """The distinct words of each line, in one flat array."""

    words: Numbers
    rows: Numbers
    n_lines: int

    @classmethod
    def of(cls, lines: Sequence[str], known: dict[str, int]) -> "_WordList":
        """Collects the words of lines, in lower case and truncated to `STEM` characters, which removes most endings.

        New words are added to `known`.
        """
        words, sizes = array("i"), array("i")
        for line in lines:
            stems = {word[:STEM] for word in WORD.findall(line.lower())}
            words.extend(known.setdefault(stem, len(known)) for stem in sorted(stems))
            sizes.append(len(stems))
        rows = np.repeat(np.arange(len(lines), dtype=np.int32), np.array(sizes, np.int32))
        return cls(np.array(words, np.int32), rows, len(lines))

    def rarest(self, numbers: Numbers) -> Numbers:
        """Returns the highest ids of each line, which are those of its rarest words."""
        values = numbers[self.words]
        rows, values = self.rows[values > 0], values[values > 0]
        order = np.lexsort((-values, rows))
        rows, values = rows[order], values[order]
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        table = np.zeros((self.n_lines, MAX_WORDS), np.int32)
        first = rank < MAX_WORDS
        table[rows[first], rank[first]] = values[first]
        return table
