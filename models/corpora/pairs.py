"""Pairs of English and German text, and the checks that all sources share."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

MAX_WORDS: Final = 100
LETTERS: Final = re.compile(r"[^\W\d_]{2}")
NUMBER: Final = re.compile(r"\d+")
SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True)
class TextPair:
    """An English text and its German translation."""

    english: str
    german: str


@dataclass
class Corpus:
    """Pairs of one source, without repetitions.

    Attributes:
        pairs: The kept pairs.
        rejected: Number of rejected pairs by reason.
    """

    pairs: list[TextPair] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)

    def add(self, pairs: Iterable[TextPair], *, max_ratio: float = 2.4) -> None:
        """Adds the pairs that are worth training on; of several translations of a text the first is kept.

        Args:
            pairs: Pairs in any order.
            max_ratio: Largest ratio of the lengths of two texts in characters.
        """
        for pair in pairs:
            if reason := _rejection(pair, max_ratio):
                self.rejected[reason] += 1
            else:
                self.pairs.append(pair)


def without_repetitions(
    pairs: Iterable[TextPair], seen: set[str], side: Literal["english", "german"] = "english"
) -> Iterator[TextPair]:
    """Yields the pairs whose text on one side is not in `seen`, whatever its letter case, and adds it there."""
    for pair in pairs:
        key = getattr(pair, side).casefold()
        if key not in seen:
            seen.add(key)
            yield pair


def one_line(text: str) -> str:
    """Returns a text with single spaces instead of line breaks and runs of white space."""
    return SPACE.sub(" ", text).strip()


def _rejection(pair: TextPair, max_ratio: float) -> str:
    """Returns why a pair is not worth training on; "" if it is."""
    sides = pair.english, pair.german
    longer, shorter = sorted(map(len, sides), reverse=True)
    if not shorter:
        return "empty"
    if pair.english == pair.german:
        return "identical"
    if max(len(side.split()) for side in sides) > MAX_WORDS:
        return "long"
    if not all(LETTERS.search(side) for side in sides):
        return "no words"
    if longer > 20 and longer > max_ratio * shorter:
        return "length ratio"
    if Counter(NUMBER.findall(pair.english)) != Counter(NUMBER.findall(pair.german)):
        return "numbers"
    return ""
