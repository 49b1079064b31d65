"""Splitting of long lines into pieces that fit a model."""

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

SENTENCE_END = re.compile(r"""(?<=[.!?…])["'”’»)\]]*\s+|(?<=[。！？])\s*""")


@dataclass(frozen=True)
class SplitLine:
    """A line as pieces that are translated separately.

    Attributes:
        pieces: Pieces in order; joined by spaces, they have the content of the line.
        is_clean: Whether every cut is at a sentence end; otherwise, a sentence was cut at a space or within a word.
        words: For each word of the pieces, the index of its word in the line; None if the line was not split.
    """

    pieces: list[str]
    is_clean: bool = True
    words: list[int] | None = None

    def with_prefix(self, prefix: str, *, is_apart: bool = True) -> "SplitLine":
        """Returns the line with a prefix, with which the line begins, before each piece.

        Args:
            prefix: Text added before each piece.
            is_apart: Whether a space follows the prefix in the line.
        """
        n_prefix = len(prefix.split())
        line_words = iter(self.words or ())
        words = [
            word
            for piece in self.pieces
            for word in (*range(n_prefix), *(n_prefix - (not is_apart) + next(line_words) for _ in piece.split()))
        ]
        return replace(self, pieces=[f"{prefix} {piece}" for piece in self.pieces], words=words)


def split_line(line: str, limit: int, count: Callable[[list[str]], list[int]]) -> SplitLine:
    """Splits a line into as few pieces of at most `limit` tokens as possible, at sentence ends if that suffices.

    Args:
        line: Line of any length.
        limit: Maximum tokens of a piece.
        count: Function that returns the number of tokens of each text.
    """
    sentences = _sentences(line)
    sizes = count(sentences)
    if max(sizes, default=0) <= limit:
        pieces = _pack(sentences, sizes, limit, count)
        return SplitLine(pieces, words=_line_word_indices(line, pieces))
    units: list[str] = []
    for sentence, size in zip(sentences, sizes, strict=True):
        units.extend([sentence] if size <= limit else _words(sentence, limit, count))
    pieces = _pack(units, count(units), limit, count)
    return SplitLine(pieces, is_clean=False, words=_line_word_indices(line, pieces))


def _line_word_indices(line: str, pieces: list[str]) -> list[int]:
    """Returns for each word of the pieces the index of the word of the line to which it belongs."""
    ends = list(accumulate(map(len, line.split())))
    parts = [part for piece in pieces for part in piece.split()]
    return [bisect_right(ends, end - len(part)) for part, end in zip(parts, accumulate(map(len, parts)), strict=True)]


def _sentences(line: str) -> list[str]:
    ends = [match.end() for match in SENTENCE_END.finditer(line)]
    bounds = zip([0, *ends], [*ends, len(line)], strict=True)
    return [sentence for start, end in bounds if (sentence := line[start:end].strip())]


def _words(sentence: str, limit: int, count: Callable[[list[str]], list[int]]) -> list[str]:
    words = sentence.split()
    sized = zip(words, count(words), strict=True)
    return [part for word, size in sized for part in ([word] if size <= limit else _halves(word, limit, count))]


def _halves(word: str, limit: int, count: Callable[[list[str]], list[int]]) -> list[str]:
    """Halves a word recursively until each part fits; a single character is never split."""
    if len(word) == 1 or count([word])[0] <= limit:
        return [word]
    middle = len(word) // 2
    return _halves(word[:middle], limit, count) + _halves(word[middle:], limit, count)


def _pack(units: list[str], sizes: list[int], limit: int, count: Callable[[list[str]], list[int]]) -> list[str]:
    """Joins neighbouring units by spaces as long as they fit together.

    In most tokenizers, a space is part of the following word, so sizes add up; a character tokenizer needs one token
    for it. A joined piece that is still too long is halved.
    """
    for space in (0, 1):
        groups = _grouped(units, [size + space for size in sizes], limit + space)
        pieces = [" ".join(group) for group in groups]
        lengths = count(pieces)
        if max(lengths, default=0) <= limit:
            return pieces
    return [
        text
        for group, piece, length in zip(groups, pieces, lengths, strict=True)
        for text in ([piece] if length <= limit else _halved(group, limit, count))
    ]


def _grouped(units: list[str], sizes: list[int], limit: int) -> list[list[str]]:
    packed: list[list[str]] = []
    capacity = -1
    for unit, size in zip(units, sizes, strict=True):
        if size > capacity:
            packed.append([])
            capacity = limit
        packed[-1].append(unit)
        capacity -= size
    return packed


def _halved(group: list[str], limit: int, count: Callable[[list[str]], list[int]]) -> list[str]:
    """Joins the units of a group, halving it recursively until each part fits; a single unit is never split."""
    joined = " ".join(group)
    if len(group) == 1 or count([joined])[0] <= limit:
        return [joined]
    middle = len(group) // 2
    return _halved(group[:middle], limit, count) + _halved(group[middle:], limit, count)
