"""Careless punctuation: no final mark, spaces too few or too many."""

from random import Random
from typing import Final

import regex

from transformer.data.augment.pair import Languages, Pair, without_final_mark

_MARK: Final = regex.compile(r"(?<=\p{L})(?P<mark>[,;:!?.])(?P<space>\s?)(?=\p{L}|$)")


def final_punctuation(pair: Pair, rng: Random, languages: Languages) -> Pair | None:
    """Removes the final punctuation mark of both sides, as people write short messages."""
    del rng, languages
    source, target = (side[: without_final_mark(side)] for side in pair)
    is_changed = source != pair[0].rstrip() and target != pair[1].rstrip()
    return (source, target) if is_changed and source and target else None


def spaces(pair: Pair, rng: Random, languages: Languages) -> Pair | None:
    """Adds a space before a punctuation mark of the source, or removes the one behind it."""
    del languages
    marks = list(_MARK.finditer(pair[0]))
    if not marks:
        return None
    mark = rng.choice(marks)
    is_glued = mark["space"] and mark["mark"] in ",;:!?" and rng.random() < 0.5
    written = mark["mark"] if is_glued else f" {mark['mark']}{mark['space']}"
    return pair[0][: mark.start()] + written + pair[0][mark.end() :], pair[1]
