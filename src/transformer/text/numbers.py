"""Numbers in a text and their values: decimals, signs, currencies, times, dates, fractions, and names such as A4.

A run of digits and separators can have several values: 1.500 is one and a half in English and fifteen hundred in
German, and 5/6 is a fraction or a day. `read_numbers` returns all values that a number can have in its language.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import regex

from transformer.text.number_words import (
    CURRENCIES,
    MEASURES,
    month_names,
    power_of_ten,
    puts_currency_first,
    separators,
    unit_names,
    uses_24_hours,
    write_date,
)

Date = tuple[int, int, int]
"""Day, month and year, which is 0 if it is not given."""
POINTS: Final = ".,٫"
"""Separators of decimals in any language."""
MAX_DIGITS: Final = 1000
"""Number of characters of a number that is read; a longer one is equal to itself only."""
_SPACES: Final = " \u00a0\u202f\u2009"
_SYMBOLS: Final = "".join(CURRENCIES)
_CODES: Final = "EUR|USD|GBP|CHF|JPY|CNY|INR|RUB|SEK|NOK|DKK|PLN|CZK|HUF|TRY|BRL|CAD|AUD"
_MEASURES: Final = "|".join(sorted(MEASURES, key=len, reverse=True))
_LETTER: Final = "[bcdfgijlnpqrtuvwyzBCDFGJLMNPQRTVWYZ]"
"""A letter behind a number that belongs to it, as in 20p and 3G; not those of ordinals, plurals, powers and times."""
_FRACTIONS: Final = "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_LETTERS: Final = r"\p{Latin}\p{Cyrillic}\p{Greek}"
_NUMBER: Final = regex.compile(
    rf"""
    (?<![\p{{L}}\d])(?!(?:{_CODES})\d)(?P<name>[{_LETTERS}]++\d[{_LETTERS}\d]*+(?:\.\d++(?![{_LETTERS}]))*+)  # A4, v1.2
    |
    (?:(?<![\w)\]%.,])(?P<sign>[-−+#]))?
    (?P<before>(?:[{_SYMBOLS}]|(?<!\w)(?:{_CODES}))[{_SPACES}]?)?(?P<inner_sign>(?<=[{_SYMBOLS}])[-−])?
    (?P<run>
        (?<!\d)\d{{4}}-\d{{2}}-\d{{2}}(?!\d)                                         # 2024-05-01
      | (?<!\d)\d{{1,2}}[hH]\d{{2}}(?!\w)                                            # 2h30
      | (?<![\d.,:/])[1-9]\d{{0,2}}(?:[{_SPACES}]\d{{3}}(?!\d))++(?:[.,]\d++)?(?!\d) # 10 000,5
      | (?:\d++[{_SPACES}]?)?[{_FRACTIONS}]                                          # 1½
      | \d++(?:[.,:/'’٫٬]\d++)*+                                                     # 1,234.5  6.6.1916  14:30
    )
    (?P<after>[{_SPACES}]?(?:[%％٪{_SYMBOLS}]|(?:{_CODES}|{_MEASURES})(?![\w/]))|(?<=\d){_LETTER}(?!\w|\.\w))?
    """,
    regex.VERBOSE,
)
_DIGIT: Final = re.compile(rf"[\d{_FRACTIONS}]")
_NEXT_WORD: Final = regex.compile(rf"[{_SPACES}-]?(\p{{Han}}|\p{{Hangul}}|\p{{L}}++)")
_WORD_BEFORE: Final = regex.compile(r"(\p{L}+)\s*\Z")
_SENTENCE_START: Final = regex.compile(r"(?:\A|[.!?:…])[\s\p{P}]*+\Z")
_MINUS: Final = frozenset({"minus", "moins", "menos", "meno", "минус", "mínus", "miinus"})
_CONTEXT: Final = 40
"""Number of characters around a number in which words belong to it."""
_LATER: Final = (
    "in the (?:afternoon|evening)|at night|nachmittags|abends|am (?:nachmittag|abend)|de l['’]après-midi|du soir"
    "|de la (?:tarde|noche)|d[ae] tarde|d[ae] noite|del pomeriggio|di sera|['’]s (?:middags|avonds)"
)
_CLOCK: Final = regex.compile(
    rf"[{_SPACES}]?(?:(?P<am>a\.?[{_SPACES}]?m(?:\.(?=[{_SPACES}]?\w)|\b))|(?P<pm>p\.?[{_SPACES}]?m(?:\.(?=[{_SPACES}]?\w)|\b))"
    rf"|(?P<later>(?:uhr |o'clock )?(?:{_LATER})\b))",
    regex.IGNORECASE,
)


@dataclass(frozen=True)
class Number:
    """A number of a text.

    Attributes:
        text: How it stands there, with its sign and unit, or the name that it is part of (`A4`).
        start: Place of its first character.
        end: Place after its last character.
        values: All values that it can have, in a canonical form; equal numbers have one in common.
        run: Its digits with their separators; empty for a date with the name of a month.
        unit: `%`, a currency by its code, a unit by its name in CLDR, e.g. `mass-milligram`, another letter that
            follows at once (`20p`), or empty.
        dates: Dates that it can be.
        clock: Time by 24 hours if its own is followed by am or pm, e.g. `14:30` for `2:30 pm`; else empty.
    """

    text: str
    start: int
    end: int
    values: frozenset[str]
    run: str
    unit: str = ""
    dates: tuple[Date, ...] = ()
    clock: str = ""


def has_digit(text: str) -> bool:
    """Whether a text has a digit of any script, or a sign such as ½."""
    return _DIGIT.search(text) is not None


def read_numbers(text: str, language: str) -> list[Number]:
    """Returns the numbers of a text in order.

    Args:
        text: The text; digits may be of any script.
        language: Its language (BCP 47); empty if it is not known.
    """
    if not has_digit(text):
        return []
    plain = _with_ascii_digits(text)
    dates = list(_spelled_dates(text, plain, language))
    plain = _blank(plain, dates)
    numbers = [number for match in _NUMBER.finditer(plain) for number in _read(match, text, plain, language)]
    return sorted(dates + numbers, key=lambda number: number.start) if dates else numbers


def _blank(text: str, numbers: Sequence[Number]) -> str:
    """Returns a text with spaces instead of numbers, which are in order."""
    parts, end = list[str](), 0
    for number in numbers:
        parts += [text[end : number.start], " " * (number.end - number.start)]
        end = number.end
    return "".join((*parts, text[end:]))


def _spelled_dates(text: str, plain: str, language: str) -> Iterator[Number]:
    """Yields the dates of a text with the name of a month: 6 June 1916, June 6th, 6. Juni."""
    pattern, months = _date_pattern(language)
    if pattern is None:
        return
    for match in pattern.finditer(plain):
        day, month, year = int(match["day"]), months[match["month"].casefold()], int(match["year"] or 0)
        values = frozenset({f"d{year or ''}-{month}-{day}"})
        yield Number(text[match.start() : match.end()], *match.span(), values, "", dates=((day, month, year),))


@lru_cache(maxsize=256)
def _date_pattern(language: str) -> "tuple[regex.Pattern[str] | None, dict[str, int]]":
    """Returns the pattern of a day with the name of a month, and the months by their names."""
    months = {name: month for month in range(1, 13) for name in month_names(month, language) if name.isalpha()}
    if not months:
        return None, {}
    names = "|".join(sorted(map(regex.escape, months), key=len, reverse=True))
    day, month, year = r"(?P<day>\d{1,2})", rf"(?P<month>{names})\.?", r"(?P<year>\d{4})"
    space, ending, link = rf"[{_SPACES}]", r"(?:\.|st|nd|rd|th|er|º|ª)?", rf"(?:(?:of|de)[{_SPACES}])?"
    first = rf"{day}{ending}{space}{link}{month}(?:,?{space}{link}{year})?"
    last = rf"{month}{space}{day}(?:st|nd|rd|th)?(?:,{space}{year}|{space}{year})?"
    return regex.compile(rf"(?<![\w.,:/-])(?:{first}|{last})(?!\w)(?![.,:/]\d)", regex.IGNORECASE), months


def _with_ascii_digits(text: str) -> str:
    if text.isascii():
        return text
    return regex.sub(r"[^\P{Nd}0-9]", lambda match: str(unicodedata.digit(match[0])), text)


def _read(match: regex.Match[str], text: str, plain: str, language: str) -> Iterator[Number]:
    start, end = match.span()
    if match["name"]:
        yield Number(text[start:end], start, end, frozenset({"=" + match[0].casefold()}), text[start:end])
        return
    run, run_start = match["run"], match.start("run")
    if run.count(",") > 1 and _is_list(run):
        for part in regex.finditer(r"\d+", run):
            place = run_start + part.start(), run_start + part.end()
            yield Number(text[slice(*place)], *place, _values(part[0], language)[0], part[0])
        return
    values, dates = _values(run, language)
    sign = match["sign"] or match["inner_sign"] or ""
    clock, clock_end = _clock_time(run, plain, end)
    if clock:
        hour, _, minutes = clock.partition(":")
        values = frozenset({f"t{clock}", hour} if minutes == "00" else {f"t{clock}"})
        end = clock_end
    elif power := _power(plain, end, language):
        values = frozenset(_canonical(Fraction(value) * 10**power) for value in values if value[0].isdigit())
    if sign in "-−" if sign else _follows_minus(plain, start):
        values = frozenset("-" + value if value[0].isdigit() else value for value in values)
    run = text[slice(*match.span("run"))]
    yield Number(text[start:end], start, end, values, run, _unit(match, plain, language), dates, clock)


def _is_list(run: str) -> bool:
    groups = run.split(",")
    return all(group.isdigit() for group in groups) and not _is_grouped(groups)


def _follows_minus(plain: str, start: int) -> bool:
    word = _WORD_BEFORE.search(plain, max(0, start - _CONTEXT), start)
    return word is not None and word[1].casefold() in _MINUS


def _unit(match: regex.Match[str], plain: str, language: str) -> str:
    """Returns the unit of a number: percent, by its sign or word, or a currency or a unit, by its symbol."""
    if sign := (match["after"] or match["before"] or "").strip(_SPACES):
        return "%" if sign in "%％٪" else CURRENCIES.get(sign) or MEASURES.get(sign, sign)
    following = plain[match.end() : match.end() + _CONTEXT].lstrip(_SPACES + "-").casefold()
    return "%" if following.startswith(unit_names("%", language)) else ""


def _power(plain: str, end: int, language: str) -> int:
    """Returns the power of ten that the word behind a number multiplies it by: 5 million, 5k."""
    word = _NEXT_WORD.match(plain, end)
    return power_of_ten(word[1], language) if word else 0


def _clock_time(run: str, plain: str, end: int) -> tuple[str, int]:
    """Returns the time by 24 hours of a number that is followed by am, pm or the like, and the end of am or pm."""
    match = _CLOCK.match(plain, end)
    time = regex.fullmatch(r"(\d{1,2})(?:[:.](\d\d))?", run)
    if not match or not time or not 1 <= int(time[1]) <= 12:
        return "", end
    hour = int(time[1]) % 12 + 12 * (not match["am"])
    if match["later"] and hour == 24:
        return "", end
    return f"{hour}:{time[2] or '00'}", end if match["later"] else match.end()


@lru_cache(maxsize=1 << 14)
def _values(run: str, language: str) -> tuple[frozenset[str], tuple[Date, ...]]:
    """Returns the values that a run of digits and separators can have, and the dates that it can be."""
    exactly = frozenset({"=" + run})
    if len(run) > MAX_DIGITS:
        return exactly, ()
    if run[-1] in _FRACTIONS:
        part = Fraction(unicodedata.normalize("NFKC", run[-1]).replace("⁄", "/"))
        whole = Fraction(run[:-1].rstrip(_SPACES) or 0)
        return frozenset({_canonical(whole + part)}), ()
    groups, marks = regex.split(r"\D", run), regex.findall(r"\D", run)
    if not marks:
        is_code = run[0] == "0" and run != "0"  # such as 007
        return (exactly if is_code else frozenset({_canonical(Fraction(run))})), ()
    dates = _dates(groups, marks, language)
    if dates and len(groups) == 3:
        return frozenset(key for date in dates for key in _date_values(date)), dates
    values = _numeric_values(groups, marks, language)
    if marks[0] in ":.hH" and len(set(marks)) == 1:
        values |= _times(groups)
    return (frozenset(values) or exactly), dates


def _canonical(value: Fraction) -> str:
    """Returns the canonical form of a value: a decimal number, or a fraction if it has no end."""
    if value.denominator == 1:
        return str(value.numerator)
    return str(value)


def _numeric_values(groups: Sequence[str], marks: Sequence[str], language: str) -> set[str]:
    """Returns the values of groups of digits as a whole number, a decimal or a fraction."""
    decimal, _ = separators(language)
    first_marks, last = set(marks[:-1]), marks[-1]
    if "/" in marks or ":" in marks or marks[0] in "hH":
        is_fraction = marks == ["/"] and int(groups[1])
        return {_canonical(Fraction(int(groups[0]), int(groups[1])))} if is_fraction else set()
    values = set[str]()
    if len(set(marks)) == 1 and _is_grouped(groups) and (len(marks) > 1 or last not in (decimal, "٫")):
        values.add(_canonical(Fraction("".join(groups))))
    is_decimal = last in POINTS and last not in first_marks and (len(marks) == 1 or _is_grouped(groups[:-1]))
    if is_decimal and len(first_marks) < 2 and (not values or not decimal):
        values.add(_canonical(Fraction("".join(groups[:-1]) + "." + groups[-1])))
    return values


def _is_grouped(groups: Sequence[str]) -> bool:
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


def write_number(number: Number, text: str, source_language: str, target_language: str) -> str:
    """Returns a number as another language writes it: `9,99 €` for `€9.99`.

    A number without separators, a time, a date, and a version such as `Python 3.11` stay as they are.

    Args:
        number: Number of the text.
        text: The text, in which it stands.
        source_language: Language of the text.
        target_language: The other language.
    """
    if not number.run:
        return write_date(number.dates[0], target_language) or number.text
    if number.clock and uses_24_hours(target_language):
        return number.clock
    run = convert_separators(number, text, source_language, target_language)
    written = number.text.replace(number.run, run, 1)
    symbol = next((symbol for symbol in _SYMBOLS if symbol in written), "")
    is_first = puts_currency_first(target_language)
    if not symbol or is_first is None or is_first == (puts_currency_first(source_language) or False):
        return written
    amount = written.replace(symbol, "").strip(_SPACES)
    return f"{symbol}{amount}" if is_first else f"{amount}\u00a0{symbol}"


def adapt_copied_numbers(source: str, translation: str, source_language: str, target_language: str) -> str:
    """Returns a translation with its own separators in numbers that it copied with those of its source.

    Args:
        source: The source.
        translation: Its translation, such as `The room is 50,83 meters long.` for `Das Zimmer ist 50,83 Meter lang.`
        source_language: Language of the source.
        target_language: Language of the translation.
    """
    adapted: dict[str, str] = {}
    for number in read_numbers(source, source_language):
        converted = convert_separators(number, source, source_language, target_language)
        if converted != number.run and not any(map(str.isspace, converted)):  # a space would make it two words
            adapted[number.run] = converted
    if not adapted:
        return translation
    parts, end = list[str](), 0
    for number in read_numbers(translation, target_language):
        if number.run in adapted:
            start = translation.index(number.run, number.start)
            parts += [translation[end:start], adapted[number.run]]
            end = start + len(number.run)
    return "".join(parts) + translation[end:]


def convert_separators(number: Number, text: str, source_language: str, target_language: str) -> str:
    """Returns the digits of a number of a text with the separators of another language; a version stays as it is."""
    if not number.unit and _is_version(number, text):
        return number.run
    return _convert(number.run, source_language, target_language)


def _is_version(number: Number, text: str) -> bool:
    """Whether a number seems to be a version, as in Python 3.11; any first word of a sentence has a capital."""
    before = _name_before(number, text)
    return before is not None and (is_label(number, text) or not _SENTENCE_START.search(text, 0, before.start()))


def is_label(number: Number, text: str) -> bool:
    """Whether a number seems to name a thing, as in `Figure 1.5`: it has a name before it and no word behind it."""
    return _name_before(number, text) is not None and not _NEXT_WORD.match(text, number.end)


def _name_before(number: Number, text: str) -> regex.Match[str] | None:
    """Returns the word with a capital before a number with a point; None if there is none."""
    before = _WORD_BEFORE.search(text, max(0, number.start - _CONTEXT), number.start)
    return before if before is not None and "." in number.run and before[1][0].isupper() else None


def _convert(run: str, source_language: str, target_language: str) -> str:
    """Returns digits with the separators of another language."""
    decimal, thousands = separators(target_language)
    groups, marks = regex.split(r"\D", run), regex.findall(r"\D", run)
    own_decimal, _ = separators(source_language)
    if (
        not run[:1].isdigit()
        or not marks
        or not decimal
        or not own_decimal
        or run[-1] in _FRACTIONS
        or set(marks) & set(":/-hH")
    ):
        return run
    is_grouped = len(set(marks)) == 1 and _is_grouped(groups) and (len(marks) > 1 or marks[0] != own_decimal)
    if is_grouped:
        return thousands.join(groups)
    if marks[-1] not in (own_decimal, "٫") or not _numeric_values(groups, marks, source_language):
        return run
    return thousands.join(groups[:-1]) + decimal + groups[-1]
