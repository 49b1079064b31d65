"""Values that a run of digits and separators can have in a language: numbers, fractions, times and dates."""

import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

import regex

from transformer.text.number_words import separators

Date = tuple[int, int, int]
"""Day, month and year, which is 0 if it is not given."""
POINTS: Final = ".,٫"
"""Separators of decimals in any language."""
MAX_DIGITS: Final = 1000
"""Number of characters of a number that is read; a longer one is equal to itself only."""
SPACES: Final = " \u00a0\u202f\u2009"
"""Spaces within a number, or between it and its unit, as the inside of a character class."""
FRACTIONS: Final = "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"


@lru_cache(maxsize=1 << 14)
def read_values(run: str, language: str) -> tuple[frozenset[str], tuple[Date, ...]]:
    """Returns the values that a run of digits and separators can have, and the dates that it can be."""
    exactly = frozenset({"=" + run})
    if len(run) > MAX_DIGITS:
        return exactly, ()
    if run[-1] in FRACTIONS:
        part = Fraction(unicodedata.normalize("NFKC", run[-1]).replace("⁄", "/"))
        whole = Fraction(run[:-1].rstrip(SPACES) or 0)
        return frozenset({str(whole + part)}), ()
    groups, marks = split_groups(run)
    if not marks:
        is_code = run[0] == "0" and run != "0"  # such as 007
        return (exactly if is_code else frozenset({str(Fraction(run))})), ()
    dates = _dates(groups, marks, language)
    if dates and len(groups) == 3:
        return frozenset(key for date in dates for key in _date_values(date)), dates
    values = numeric_values(groups, marks, language)
    if marks[0] in ":.hH" and len(set(marks)) == 1:
        values |= _times(groups)
    return (frozenset(values) or exactly), dates


def split_groups(run: str) -> tuple[list[str], list[str]]:
    """Returns the groups of digits of a run, and the separators between them."""
    return regex.split(r"\D", run), regex.findall(r"\D", run)


def numeric_values(groups: Sequence[str], marks: Sequence[str], language: str) -> set[str]:
    """Returns the values of groups of digits as a whole number, a decimal or a fraction."""
    decimal, _ = separators(language)
    first_marks, last = set(marks[:-1]), marks[-1]
    if "/" in marks or ":" in marks or marks[0] in "hH":
        is_fraction = marks == ["/"] and int(groups[1])
        return {str(Fraction(int(groups[0]), int(groups[1])))} if is_fraction else set()
    values = set[str]()
    if len(set(marks)) == 1 and is_grouped(groups) and (len(marks) > 1 or last not in (decimal, "٫")):
        values.add(str(Fraction("".join(groups))))
    is_decimal = last in POINTS and last not in first_marks and (len(marks) == 1 or is_grouped(groups[:-1]))
    if is_decimal and len(first_marks) < 2 and (not values or not decimal):
        values.add(str(Fraction("".join(groups[:-1]) + "." + groups[-1])))
    return values


def is_grouped(groups: Sequence[str]) -> bool:
    """Whether digits stand in groups of three, or before the last one of two, as in India."""
    first, *between, last = groups
    if first[0] == "0" or len(last) != 3:
        return False
    sizes = {len(group) for group in between}
    return (len(first) <= 3 and sizes <= {3}) or (len(first) <= 2 and sizes == {2})


def _times(groups: Sequence[str]) -> set[str]:
    """Returns the time of day that groups of digits can be, or an exact form of a ratio such as 3:2."""
    if any(len(group) != 2 for group in groups[1:]) or len(groups[0]) > 2 or len(groups) > 3:
        return set()
    is_time = int(groups[0]) <= 24 and all(int(group) <= 59 for group in groups[1:])
    return {f"t{int(groups[0])}:{':'.join(groups[1:])}"} if is_time else set()


def _dates(groups: Sequence[str], marks: Sequence[str], language: str) -> tuple[Date, ...]:
    """Returns the dates that groups of digits can be."""
    if len(set(marks)) != 1 or marks[0] not in "./-" or any(len(group) > 4 for group in groups):
        return ()
    numbers = [int(group) for group in groups]
    orders: list[Date] = []
    if len(groups) == 3 and len(groups[0]) == 4:
        orders = [(numbers[2], numbers[1], numbers[0])]
    elif len(groups) == 3 and len(groups[2]) in (2, 4):
        orders = [(numbers[0], numbers[1], numbers[2]), (numbers[1], numbers[0], numbers[2])]
    elif len(groups) == 2:
        orders = [(numbers[0], numbers[1], 0), (numbers[1], numbers[0], 0)]
    if marks[0] == "." or not language.startswith("en"):
        orders = orders[:1]  # only in English is the month written first
    return tuple(date for date in orders if 1 <= date[0] <= 31 and 1 <= date[1] <= 12)


def _date_values(date: Date) -> list[str]:
    day, month, year = date
    years = [year] if year > 99 else [1900 + year, 2000 + year]
    return [f"d{full}-{month}-{day}" for full in years]
