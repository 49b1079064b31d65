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


def split_line(line: str, fits: Callable[[str], bool]) -> SplitLine:
    """Cuts a line so that each piece fits, at sentence ends if that suffices, and packs sentences while they fit."""
    if fits(line):
        return SplitLine([line])
    sentences = _sentences(line)
    if all(fits(sentence) for sentence in sentences):
        return SplitLine(_pack(sentences, fits))
    units = [unit for sentence in sentences for unit in ([sentence] if fits(sentence) else _words(sentence, fits))]
    return SplitLine(_pack(units, fits), is_clean=False)


def _sentences(line: str) -> list[str]:
    ends = [match.end() for match in SENTENCE_END.finditer(line)]
    bounds = zip([0, *ends], [*ends, len(line)], strict=True)
    return [sentence for start, end in bounds if (sentence := line[start:end].strip())]


def _words(sentence: str, fits: Callable[[str], bool]) -> list[str]:
    return [part for word in sentence.split() for part in _halves(word, fits)]


def _halves(word: str, fits: Callable[[str], bool]) -> list[str]:
    """The word, or its halves and their halves until each fits."""
    if fits(word) or len(word) == 1:
        return [word]
    middle = len(word) // 2
    return _halves(word[:middle], fits) + _halves(word[middle:], fits)


def _pack(units: list[str], fits: Callable[[str], bool]) -> list[str]:
    """Joins neighbours while the result fits."""
    packed: list[str] = []
    for unit in units:
        if packed and fits(f"{packed[-1]} {unit}"):
            packed[-1] = f"{packed[-1]} {unit}"
        else:
            packed.append(unit)
    return packed
