"""Types of augmentation, and the places at which both sides of a pair correspond."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

import regex

Pair = tuple[str, str]
Languages = tuple[str, str]
Change = Callable[[Pair, Random, Languages], Pair | None]
"""Returns a changed copy of a pair; None if the pair does not allow the change."""

_WORD: Final = regex.compile(
    r"(?<![\p{L}\p{M}\p{N}@#&_]|\p{N}[.,:/'’])[\p{L}\p{N}][\p{L}\p{M}\p{N}]++(?![.,:/'’][\p{L}\p{N}]|[@_])"
)
_FINAL_MARKS, _CLOSING = ".!?…。！？।؟", "\"'”’»)"


@dataclass(frozen=True)
class Place:
    """A span of the source and the span of the target that corresponds to it."""

    source: tuple[int, int]
    target: tuple[int, int]

    def surround(self, pair: Pair, before: str, after: str) -> Pair:
        """Returns the pair with text before and after the span of each side."""
        source, target = (
            f"{side[:start]}{before}{side[start:end]}{after}{side[end:]}"
            for side, (start, end) in zip(pair, (self.source, self.target), strict=True)
        )
        return source, target


def shared_words(pair: Pair) -> list[Place]:
    """Returns the places of words and numbers that stand exactly once on each side, such as names."""
    sides = [[(match[0], match.span()) for match in _WORD.finditer(side)] for side in pair]
    words = [[word for word, _ in side] for side in sides]
    places = [dict(side) for side in sides]
    return [
        Place(places[0][word], places[1][word])
        for word in words[0]
        if words[0].count(word) == 1 and words[1].count(word) == 1
    ]


def whole_sides(pair: Pair) -> Place:
    """Returns the place of all of each side but its final punctuation mark."""
    source, target = ((0, without_final_mark(side)) for side in pair)
    return Place(source, target)


def without_final_mark(text: str) -> int:
    """Returns the length of a text without its final punctuation mark and the space around it."""
    whole = text.rstrip()
    marked = whole.rstrip(_CLOSING)
    bare = marked.rstrip(_FINAL_MARKS)
    return len(bare.rstrip() if bare != marked else whole)
