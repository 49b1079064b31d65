"""Comparison of the numbers of a text with those of its translation, by value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import regex

from transformer.text.number_words import month_names, numbers_in_words, unit_names
from transformer.text.numbers import Number, is_label, read_numbers

_DIGIT: Final = regex.compile(r"\p{Nd}")
Texts = tuple[str, str]
"""A text and its translation, or their languages."""


@dataclass(frozen=True)
class NumberDifferences:
    """Numbers that a text and its translation do not share.

    Attributes:
        missing: Numbers of the text that its translation lacks or changes.
        invented: Numbers of the translation that the text does not have.
    """

    missing: list[Number] = field(default_factory=list)
    invented: list[Number] = field(default_factory=list)


def compare_numbers(texts: Texts, languages: Texts) -> NumberDifferences:
    """Returns the numbers that a text and its translation do not share, in the order in which they stand.

    Numbers are the same if they have a value and a unit in common, whatever they look like: 1,000.5 and 1.000,5; 2:30
    pm and 14:30. A number may be written as a word in languages that text2num reads, and a month by its name.

    Args:
        texts: The text and its translation.
        languages: Their languages (BCP 47); empty if not known.
    """
    source, target = (read_numbers(text, language) for text, language in zip(texts, languages, strict=True))
    if not source and not languages[0]:
        return NumberDifferences()  # the text may have numbers in words of which nothing is known
    source, target = _without_pairs(
        source,
        target,
        lambda s, t: (
            s.text == t.text
            and (_is_equal(s, t, texts, languages) or (is_label(s, texts[0]) and is_label(t, texts[1])))
        ),
    )
    source, target = _without_pairs(source, target, lambda s, t: _is_equal(s, t, texts, languages))
    target = _without_spelled_dates(source, target, texts[1], languages[1])
    source = _without_spelled_dates(target, source, texts[0], languages[0])
    return NumberDifferences(
        _without_words(source, texts[1], languages[1]), _without_words(target, texts[0], languages[0])
    )


def _without_pairs(
    source: Sequence[Number], target: Sequence[Number], is_equal: Callable[[Number, Number], bool]
) -> tuple[list[Number], list[Number]]:
    """Returns the numbers of both sides that have no equal number on the other side; each serves once."""
    left, remaining = [], list(target)
    for number in source:
        equal = next((other for other in remaining if is_equal(number, other)), None)
        if equal is None:
            left.append(number)
        else:
            remaining.remove(equal)
    return left, remaining


def _is_equal(source: Number, target: Number, texts: Texts, languages: Texts) -> bool:
    if not source.values & target.values:
        return False
    if source.unit == target.unit:
        return True
    if source.unit and target.unit:
        return False
    if source.unit:
        return _names_unit(texts[1], source.unit, languages[1])
    return _names_unit(texts[0], target.unit, languages[0])


def _names_unit(text: str, unit: str, language: str) -> bool:
    """Whether a text names a unit in words; also True if the words of its language are not known."""
    names, folded = unit_names(unit, language), text.casefold()
    return not names or any(name in folded for name in names)


def _without_spelled_dates(dated: list[Number], spelled: list[Number], text: str, language: str) -> list[Number]:
    """Pairs dates such as 6.6.1916 with numbers beside the name of their month, and removes the dates from `dated`.

    Returns:
        The numbers of `spelled` that belong to no such date.
    """
    remaining, folded = list(spelled), text.casefold()
    for number in list(dated):
        for day, month, year in number.dates:
            days = {f"d-{month}-{day}"}
            if any(_has_word(folded, name) for name in month_names(month, language)):
                days.add(str(day))
            wanted = [days, {str(year)}] if year else [days]
            partners = [next((other for other in remaining if values & other.values), None) for values in wanted]
            if None not in partners:
                dated.remove(number)
                remaining = [other for other in remaining if other not in partners]
                break
    return remaining


def _has_word(folded: str, word: str) -> bool:
    return regex.search(rf"(?<!\w){regex.escape(word)}(?!\w)", folded) is not None


def _without_words(numbers: list[Number], text: str, language: str) -> list[Number]:
    """Returns the numbers that a text does not have as words."""
    if not numbers:
        return numbers
    words = read_numbers(numbers_in_words(_DIGIT.sub("#", text), language), language)
    left, _ = _without_pairs(numbers, words, lambda number, word: bool(number.values & word.values))
    return left
