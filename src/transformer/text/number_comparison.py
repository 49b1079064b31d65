"""Comparison of the numbers of a text with those of its translation, by value."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
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
    is_same_unit = _unit_comparison(texts, languages)
    pool = _Pool(target)
    source = [number for number in source if not pool.take_same_text(number, texts, is_same_unit)]
    source = [number for number in source if not pool.take(number.values, partial(is_same_unit, number.unit))]
    target = pool.left()
    source, target = _without_spelled_dates(source, target, texts[1], languages[1])
    target, source = _without_spelled_dates(target, source, texts[0], languages[0])
    return NumberDifferences(
        _without_words(source, texts[1], languages[1]), _without_words(target, texts[0], languages[0])
    )


def _any_unit(_: str) -> bool:
    return True


class _Pool:
    """Numbers that are found by text and by value in constant time; each is taken once.

    Args:
        numbers: The numbers, in the order in which they are taken.
    """

    def __init__(self, numbers: Sequence[Number]) -> None:
        self._numbers, self._is_taken = numbers, [False] * len(numbers)
        self._by_text: dict[str, deque[int]] = defaultdict(deque)
        self._by_value: dict[str, dict[str, deque[int]]] = defaultdict(lambda: defaultdict(deque))
        for place, number in enumerate(numbers):
            self._by_text[number.text].append(place)
            for value in number.values:
                self._by_value[value][number.unit].append(place)

    def take_same_text(self, number: Number, texts: Texts, is_same_unit: Callable[[str, str], bool]) -> bool:
        """Takes the next number with the same text if it is equal, or if both are labels; returns whether it is."""
        places = self._by_text.get(number.text)
        if not places:
            return False
        other = self._numbers[places[0]]
        is_equal = bool(number.values & other.values) and is_same_unit(number.unit, other.unit)
        if is_equal or (is_label(number, texts[0]) and is_label(other, texts[1])):
            self._is_taken[places.popleft()] = True
            return True
        return False

    def take(self, values: Iterable[str], has_unit: Callable[[str], bool] = _any_unit) -> bool:
        """Takes the next number with one of the values and a unit that suits; returns whether there is one."""
        place = self.find(values, has_unit)
        if place is not None:
            self._is_taken[place] = True
        return place is not None

    def find(self, values: Iterable[str], has_unit: Callable[[str], bool] = _any_unit) -> int | None:
        """Returns the place of the next number with one of the values and a unit that suits; None if there is none."""
        for value in sorted(values):
            for unit, places in self._by_value.get(value, {}).items():
                while places and self._is_taken[places[0]]:
                    places.popleft()
                if places and has_unit(unit):
                    return places[0]
        return None

    def left(self) -> list[Number]:
        """Returns the numbers that were not taken."""
        return [number for number, is_taken in zip(self._numbers, self._is_taken, strict=True) if not is_taken]


def _unit_comparison(texts: Texts, languages: Texts) -> Callable[[str, str], bool]:
    """Returns a function that tells whether the units of two numbers are the same, or one is named in words."""

    @cache
    def is_same(source: str, target: str) -> bool:
        if source.casefold() == target.casefold():
            return True
        if source and target:
            return False
        side, unit = (1, source) if source else (0, target)
        if len(unit) == 1 and unit.isalpha():
            return regex.search(rf"\d[\s-]*{unit.casefold()}", texts[side].casefold()) is not None
        names, folded = unit_names(unit, languages[side]), texts[side].casefold()
        return not names or any(name in folded for name in names)  # without names, nothing is known

    return is_same


def _without_spelled_dates(
    dated: Sequence[Number], spelled: Sequence[Number], text: str, language: str
) -> tuple[list[Number], list[Number]]:
    """Pairs dates such as 6.6.1916 with numbers beside the name of their month.

    Args:
        dated: Numbers of one side, some of which may be dates.
        spelled: Numbers of the other side.
        text: Text of the other side.
        language: Its language.

    Returns:
        The numbers of both sides that belong to no such date.
    """
    if not any(number.dates for number in dated):
        return [*dated], [*spelled]
    folded, pool = text.casefold(), _Pool(spelled)

    @cache
    def has_month(month: int) -> bool:
        return any(_has_word(folded, name) for name in month_names(month, language))

    def take(day: int, month: int, year: int) -> bool:
        days = [f"d-{month}-{day}", *([str(day)] if has_month(month) else [])]
        return pool.find(days) is not None and (not year or pool.take([str(year)])) and pool.take(days)

    return [number for number in dated if not any(take(*date) for date in number.dates)], pool.left()


def _has_word(folded: str, word: str) -> bool:
    return regex.search(rf"(?<!\w){regex.escape(word)}(?!\w)", folded) is not None


def _without_words(numbers: list[Number], text: str, language: str) -> list[Number]:
    """Returns the numbers that a text does not have as words."""
    if not numbers:
        return numbers
    pool = _Pool(read_numbers(numbers_in_words(_DIGIT.sub("#", text), language), language))
    return [number for number in numbers if not pool.take(number.values)]
