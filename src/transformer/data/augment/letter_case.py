"""Other letter case: capitals, Title Case, lower case."""

from random import Random
from typing import Final

import regex

from transformer.data.augment.pair import Languages, Pair
from transformer.text.case import to_capitals

_INITIAL: Final = regex.compile(r"(?<![\p{L}\p{M}\p{N}'’])\p{Ll}")


def capitals(pair: Pair, rng: Random, languages: Languages) -> Pair | None:
    """Writes both sides in capitals."""
    del rng
    source, target = (to_capitals(side, language) for side, language in zip(pair, languages, strict=True))
    return (source, target) if source != pair[0] else None


def title_case(pair: Pair, rng: Random, languages: Languages) -> Pair | None:
    """Writes the source in Title Case."""
    del rng, languages
    source = _INITIAL.sub(lambda initial: initial[0].upper(), pair[0])
    return (source, pair[1]) if source != pair[0] else None


def lower_case(pair: Pair, rng: Random, languages: Languages) -> Pair | None:
    """Writes the source in lower case."""
    del rng, languages
    source = pair[0].lower()
    return (source, pair[1]) if source != pair[0] else None
