"""Typing mistakes in the source: letters swapped, doubled, lost, or of a neighbouring key."""

from random import Random
from typing import Final

import regex

from transformer.data.augment.pair import Languages, Pair
from transformer.text.languages import base_language

WORDS_PER_TYPO: Final = 10
"""Number of words of which one has a typo, on average; a shorter text has one."""
_WORD: Final = regex.compile(r"\p{Latin}{4,}+")
_ROWS: Final = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _neighbours(rows: tuple[str, ...]) -> dict[str, str]:
    """Returns the letters beside each key of a keyboard, whose rows are shifted by half a key."""
    keys = {
        letter: (row, column + row / 2) for row, letters in enumerate(rows) for column, letter in enumerate(letters)
    }
    return {
        letter: "".join(
            other for other, (r, c) in keys.items() if other != letter and abs(r - row) <= 1 and abs(c - column) <= 1
        )
        for letter, (row, column) in keys.items()
    }


_QWERTY: Final = _neighbours(_ROWS)
_KEYBOARDS: Final = {
    "de": _neighbours(tuple(row.translate(str.maketrans("yz", "zy")) for row in _ROWS)),
    "fr": _neighbours(("azertyuiop", "qsdfghjklm", "wxcvbn")),
}
"""Keyboards by language; others have the letters of an American one."""


def typos(pair: Pair, rng: Random, languages: Languages) -> Pair | None:
    """Puts one typo into about every tenth word of the source, and at least one."""
    source = pair[0]
    words = [match.span() for match in _WORD.finditer(source)]
    if not words:
        return None
    neighbours = _KEYBOARDS.get(base_language(languages[0]), _QWERTY)
    n_typos = max(1, round(len(source.split()) / WORDS_PER_TYPO))
    for start, end in sorted(rng.sample(words, min(n_typos, len(words))), reverse=True):
        source = source[:start] + _mistype(source[start:end], rng, neighbours) + source[end:]
    return (source, pair[1]) if source != pair[0] else None


def _mistype(word: str, rng: Random, neighbours: dict[str, str]) -> str:
    """Returns a word with one mistake behind its first letter."""
    kind, index = rng.choice(("swap", "neighbour", "double", "lose")), rng.randrange(1, len(word) - 1)
    before, letter, after = word[:index], word[index], word[index + 1 :]
    if kind == "swap":
        return before + after[0] + letter + after[1:]
    if kind == "double":
        return before + letter + letter + after
    if kind == "neighbour" and letter in neighbours:
        return before + rng.choice(neighbours[letter]) + after
    return before + after
