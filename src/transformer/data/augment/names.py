"""Other names on both sides."""

from random import Random
from typing import Final

import regex

from transformer.data.augment.pair import Languages, Pair, shared_words

GIVEN_NAMES: Final = (
    "Ahmed", "Ali", "Alice", "Amina", "Anna", "Ben", "Bob", "Carlos", "Clara", "David", "Elena", "Emily", "Emma", "Eva",
    "Fatima", "Felix", "George", "Hannah", "Ivan", "James", "Jane", "John", "Jonas", "Julia", "Karl", "Kate", "Kenji",
    "Laura", "Leon", "Linda", "Lisa", "Lukas", "Maria", "Marie", "Martin", "Mary", "Max", "Mehmet", "Michael", "Nina",
    "Olga", "Paul", "Peter", "Pierre", "Priya", "Sarah", "Sofia", "Sophie", "Susan", "Thomas", "Tim", "Tom", "Wei",
    "Yuki",
)  # fmt: skip
"""Names that are also exchanged at the start of a sentence, where any word has a capital."""
MADE_UP_SHARE: Final = 0.6
"""Share of given names that become made-up ones, so that a model learns to copy names that it has never seen."""
_ONSETS: Final = (
    "b", "br", "ch", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "r", "s", "sh", "st",
    "t", "tr", "v", "w", "y", "z",
)  # fmt: skip
_VOWELS: Final = ("a", "a", "e", "e", "i", "o", "u", "ai", "ei", "ia", "io", "ö", "é")
_CODAS: Final = ("", "", "", "n", "r", "s", "l", "m", "k", "nd", "tt", "x", "ng", "ck")
_NAME: Final = regex.compile(r"[\p{Lu}&&\p{Latin}][\p{Ll}&&\p{Latin}]++", regex.V1)
_SENTENCE_START: Final = regex.compile(r"(?:^|[.!?:…]|\n)[^\p{L}\p{N}]*$")


def names(pair: Pair, rng: Random, languages: Languages) -> Pair | None:
    """Replaces a name that both sides write alike.

    A name is a capitalized word within a sentence of both sides, or one of the usual given names. One that also stands
    elsewhere, as in *Tom's*, is left alone. A place or a company gets a name that is made up.
    """
    del languages
    for place in shared_words(pair):
        spans = place.source, place.target
        word = pair[0][slice(*spans[0])]
        starts = (_SENTENCE_START.search(side[:start]) for side, (start, _) in zip(pair, spans, strict=True))
        is_alone = all(side.count(word) == 1 for side in pair)
        is_given = word in GIVEN_NAMES
        if is_alone and _NAME.fullmatch(word) and (is_given or not any(starts)):
            other = rng.choice(GIVEN_NAMES) if is_given and rng.random() > MADE_UP_SHARE else made_up_name(rng)
            source, target = (
                f"{side[:start]}{other}{side[end:]}" for side, (start, end) in zip(pair, spans, strict=True)
            )
            return (source, target) if other != word else None
    return None


def made_up_name(rng: Random) -> str:
    """Returns a name of one to three syllables that nobody has."""
    syllables = rng.choice((1, 2, 2, 2, 3))
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables)
    ).capitalize()  # fmt: skip
