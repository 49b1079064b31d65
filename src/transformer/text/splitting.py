"""Over-long lines to pieces that fit, and back."""

import re
from collections.abc import Callable
from dataclasses import dataclass

SENTENCE_END = re.compile(r"""(?<=[.!?…])["'”’»)\]]*\s+|(?<=[。！？])\s*""")


@dataclass(frozen=True)
class SplitLine:
    """A line as pieces to translate one by one.

    Attributes:
        pieces: in order; joined by a space they say what the line said.
        is_clean: every cut is at a sentence end. Where it is False, a sentence was cut at a space or within a word.
    """

    pieces: list[str]
    is_clean: bool = True


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
        return SplitLine(_pack(sentences, sizes, limit, count))
    units: list[str] = []
    for sentence, size in zip(sentences, sizes, strict=True):
        units.extend([sentence] if size <= limit else _words(sentence, limit, count))
    return SplitLine(_pack(units, count(units), limit, count), is_clean=False)


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
