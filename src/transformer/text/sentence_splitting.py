"""Over-long lines to pieces that fit, and back."""

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

SENTENCE_END = re.compile(r"""(?<=[.!?…])["'”’»)\]]*\s+|(?<=[。！？])\s*""")


@dataclass(frozen=True)
class SplitLine:
    """A line as pieces to translate one by one.

    Attributes:
        pieces: in order; joined by a space they say what the line said.
        is_clean: every cut is at a sentence end. Where it is False, a sentence was cut at a space or within a word.
        words: for each word of the pieces the word of the line that it is, or is part of; None of a line that is whole.
    """

    pieces: list[str]
    is_clean: bool = True
    words: list[int] | None = None

    def with_prefix(self, lead: str, *, is_apart: bool = True) -> "SplitLine":
        """Each piece with what must lead it, whose words are those that the line begins with.

        Args:
            lead: that.
            is_apart: whether a space follows it in the line.
        """
        leading = len(lead.split())
        own = iter(self.words or ())
        words = [
            word
            for piece in self.pieces
            for word in (*range(leading), *(leading - (not is_apart) + next(own) for _ in piece.split()))
        ]
        return replace(self, pieces=[f"{lead} {piece}" for piece in self.pieces], words=words)


def split_line(line: str, limit: int, count: Callable[[list[str]], list[int]]) -> SplitLine:
    """Cuts a line into pieces of at most `limit` tokens, at sentence ends if that suffices, as few as they can be.

    Args:
        line: of any length.
        limit: most tokens of a piece.
        count: tokens of each text.
    """
    sentences = _sentences(line)
    sizes = count(sentences)
    if max(sizes, default=0) <= limit:
        pieces = _pack(sentences, sizes, limit, count)
        return SplitLine(pieces, words=_words_as_given(line, pieces))
    units: list[str] = []
    for sentence, size in zip(sentences, sizes, strict=True):
        units.extend([sentence] if size <= limit else _words(sentence, limit, count))
    pieces = _pack(units, count(units), limit, count)
    return SplitLine(pieces, is_clean=False, words=_words_as_given(line, pieces))


def _words_as_given(line: str, pieces: list[str]) -> list[int]:
    """For each word of the pieces of a line the word of the line that it is, or is a part of."""
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
    """The word, or its halves and their halves until each fits; a single character is never cut."""
    if len(word) == 1 or count([word])[0] <= limit:
        return [word]
    middle = len(word) // 2
    return _halves(word[:middle], limit, count) + _halves(word[middle:], limit, count)


def _pack(units: list[str], sizes: list[int], limit: int, count: Callable[[list[str]], list[int]]) -> list[str]:
    """Joins neighbours by spaces while their tokens fit together.

    Most tokenizers make a space a part of the word after it, so that sizes add up; characters spend a token on it.
    Where what is joined is still too long, it is halved.
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
    room = -1
    for unit, size in zip(units, sizes, strict=True):
        if size > room:
            packed.append([])
            room = limit
        packed[-1].append(unit)
        room -= size
    return packed


def _halved(group: list[str], limit: int, count: Callable[[list[str]], list[int]]) -> list[str]:
    """The units of a group joined, or its halves and theirs until each fits; a single unit is never cut."""
    joined = " ".join(group)
    if len(group) == 1 or count([joined])[0] <= limit:
        return [joined]
    middle = len(group) // 2
    return _halved(group[:middle], limit, count) + _halved(group[middle:], limit, count)
