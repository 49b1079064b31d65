"""Maps between the words and units of a line and those after normalization, which a model sees."""

from collections.abc import Callable
from typing import Final

from transformer.pipelines.translation.alignment import SPACE
from transformer.pipelines.translation.inline_tags import UNIT, count_units

CONTEXT: Final = 64
"""Number of characters before a unit that decide whether it belongs to the unit before it."""
Normalize = Callable[[str], str]


def seen_words(text: str, normalize: Normalize) -> list[int]:
    """Maps each word that the model sees to the word of the text that it is a part of.

    Args:
        text: Text whose words are separated by white space.
        normalize: Normalization by the source tokenizer.
    """
    words = text.split()
    if is_seen_whole(text, normalize):
        return [*range(len(words))]
    return [index for index, word in enumerate(words) for _ in _seen(word, normalize).split()]


def is_seen_whole(text: str, normalize: Normalize) -> bool:
    """Whether the model sees all words of a text as they are."""
    seen = _seen(text, normalize)
    return seen == text or seen.split() == text.split()


def seen_units(text: str, normalize: Normalize) -> list[int]:
    """Maps each unit (see `inline_tags`) that the model sees to the unit of the text that it begins in.

    Args:
        text: Text without tags.
        normalize: Normalization by the source tokenizer.
    """
    if is_seen_whole(text, normalize):
        return [*range(count_units(text))]
    units: list[int] = []
    before, end = "", 0  # the text from the start of the last unit that is seen
    for index, unit in enumerate(UNIT.finditer(text)):
        before = (before + text[end : unit.start()])[-CONTEXT:]
        with_unit = before + unit.group()
        n_new = count_units(_seen(with_unit, normalize)) - count_units(_seen(before, normalize))
        units += [index] * n_new
        before, end = unit.group() if n_new > 0 else with_unit, unit.end()
    return units


def _seen(text: str, normalize: Normalize) -> str:
    return normalize(text).replace(SPACE, " ")
