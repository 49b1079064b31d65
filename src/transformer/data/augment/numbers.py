"""Other numbers on both sides, exchanged by value."""

from collections.abc import Sequence
from random import Random
from typing import Final

import regex

from transformer.data.augment.pair import Languages, Pair
from transformer.text.number_comparison import compare_numbers
from transformer.text.numbers import Number, read_numbers

_DIGIT: Final = regex.compile(r"[0-9]")
_YEARS: Final = (1900, 2050)
_SINGULAR: Final = frozenset({"0", "1"})
"""Numbers beside which words have another form than beside most others."""


def numbers(pair: Pair, rng: Random, languages: Languages) -> Pair | None:
    """Replaces the numbers of both sides by others with as many digits; years by years.

    The digits of each side are replaced where they stand, so that separators and units stay. A pair is left alone
    unless the numbers of both sides are the same and each is written in digits. Dates and times stay, and so does 1.
    """
    sides = [read_numbers(side, language) for side, language in zip(pair, languages, strict=True)]
    differences = compare_numbers(pair, languages)
    if not sides[0] or differences.missing or differences.invented or len(sides[0]) != len(sides[1]):
        return None
    if not all(_is_plain(number) for side in sides for number in side):
        return None
    others: dict[str, str] = {}
    for number in sides[0]:
        digits = _digits(number)
        if digits not in others:
            others[digits] = _other(digits, rng)
    if len({*others.values()}) != len(others) or {_digits(number) for number in sides[1]} != others.keys():
        return None
    source, target = (
        _replace(text, side, others) for text, side in zip(pair, sides, strict=True)
    )  # fmt: skip
    return (source, target) if source != pair[0] and not _differ((source, target), languages) else None


def _differ(pair: Pair, languages: Languages) -> bool:
    differences = compare_numbers(pair, languages)
    return bool(differences.missing or differences.invented)


def _is_plain(number: Number) -> bool:
    """Whether a number is neither a date nor a time, and all its digits are ASCII."""
    return (
        bool(number.run)
        and not number.dates
        and not number.clock
        and set(number.run) <= set("0123456789.,' \u00a0\u202f")
    )


def _digits(number: Number) -> str:
    return "".join(_DIGIT.findall(number.run))


def _other(digits: str, rng: Random) -> str:
    """Returns other digits, as many; a year for a year, and 1 and 0 themselves."""
    if digits in _SINGULAR:
        return digits
    if len(digits) == 4 and _YEARS[0] <= int(digits) <= _YEARS[1]:
        return str(rng.randint(*_YEARS))
    first = rng.choice("23456789" if len(digits) == 1 else "0" if digits[0] == "0" else "123456789")
    return first + "".join(rng.choice("0123456789") for _ in digits[1:])


def _replace(text: str, numbers: Sequence[Number], others: dict[str, str]) -> str:
    """Returns the text with other digits in its numbers."""
    for number in reversed(numbers):
        digits = iter(others[_digits(number)])
        written = _DIGIT.sub(lambda _, digits=digits: next(digits), number.text)
        text = text[: number.start] + written + text[number.end :]
    return text
