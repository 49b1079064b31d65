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

from transformer.text.number_values import FRACTIONS, SPACES, Date, is_grouped, read_values
from transformer.text.number_words import CURRENCIES, MEASURES, month_names, power_of_ten, unit_names

_SYMBOLS: Final = "".join(CURRENCIES)
_CODES: Final = "EUR|USD|GBP|CHF|JPY|CNY|INR|RUB|SEK|NOK|DKK|PLN|CZK|HUF|TRY|BRL|CAD|AUD"
_MEASURES: Final = "|".join(sorted(MEASURES, key=len, reverse=True))
_LETTER: Final = "[bcdfgijlnpqrtuvwyzBCDFGJLMNPQRTVWYZ]"
"""A letter behind a number that belongs to it, as in 20p and 3G; not those of ordinals, plurals, powers and times."""
_LETTERS: Final = r"\p{Latin}\p{Cyrillic}\p{Greek}"
_NUMBER: Final = regex.compile(
    rf"""
    (?<![\p{{L}}\d])(?!(?:{_CODES})\d)(?P<name>[{_LETTERS}]++\d[{_LETTERS}\d]*+(?:\.\d++(?![{_LETTERS}]))*+)  # A4, v1.2
    |
    (?:(?<![\w)\]%.,])(?P<sign>[-−+#]))?
    (?P<before>(?:[{_SYMBOLS}]|(?<!\w)(?:{_CODES}))[{SPACES}]?)?(?P<inner_sign>(?<=[{_SYMBOLS}])[-−])?
    (?P<run>
        (?<!\d)\d{{4}}-\d{{2}}-\d{{2}}(?!\d)                                         # 2024-05-01
      | (?<!\d)\d{{1,2}}[hH]\d{{2}}(?!\w)                                            # 2h30
      | (?<![\d.,:/])[1-9]\d{{0,2}}(?:[{SPACES}]\d{{3}}(?!\d))++(?:[.,]\d++)?(?!\d)  # 10 000,5
      | (?:\d++[{SPACES}]?)?[{FRACTIONS}]                                            # 1½
      | \d++(?:[.,:/'’٫٬]\d++)*+                                                     # 1,234.5  6.6.1916  14:30
    )
    (?P<after>[{SPACES}]?(?:[%％٪{_SYMBOLS}]|(?:{_CODES}|{_MEASURES})(?![\w/]))|(?<=\d){_LETTER}(?!\w|\.\w))?
    """,
    regex.VERBOSE,
)
_DIGIT: Final = re.compile(rf"[\d{FRACTIONS}]")
_NEXT_WORD: Final = regex.compile(rf"[{SPACES}-]?(\p{{Han}}|\p{{Hangul}}|\p{{L}}++)")
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
    rf"[{SPACES}]?(?:(?P<am>a\.?[{SPACES}]?m(?:\.(?=[{SPACES}]?\w)|\b))|(?P<pm>p\.?[{SPACES}]?m(?:\.(?=[{SPACES}]?\w)|\b))"
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
    space, ending, link = rf"[{SPACES}]", r"(?:\.|st|nd|rd|th|er|º|ª)?", rf"(?:(?:of|de)[{SPACES}])?"
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
            yield Number(text[slice(*place)], *place, read_values(part[0], language)[0], part[0])
        return
    values, dates = read_values(run, language)
    sign = match["sign"] or match["inner_sign"] or ""
    clock, clock_end = _clock_time(run, plain, end)
    if clock:
        hour, _, minutes = clock.partition(":")
        values = frozenset({f"t{clock}", hour} if minutes == "00" else {f"t{clock}"})
        end = clock_end
    elif power := _power(plain, end, language):
        values = frozenset(str(Fraction(value) * 10**power) for value in values if value[0].isdigit())
    if sign in "-−" if sign else _follows_minus(plain, start):
        values = frozenset("-" + value if value[0].isdigit() else value for value in values)
    run = text[slice(*match.span("run"))]
    yield Number(text[start:end], start, end, values, run, _unit(match, plain, language), dates, clock)


def _is_list(run: str) -> bool:
    groups = run.split(",")
    return all(group.isdigit() for group in groups) and not is_grouped(groups)


def _follows_minus(plain: str, start: int) -> bool:
    word = _WORD_BEFORE.search(plain, max(0, start - _CONTEXT), start)
    return word is not None and word[1].casefold() in _MINUS


def _unit(match: regex.Match[str], plain: str, language: str) -> str:
    """Returns the unit of a number: percent, by its sign or word, or a currency or a unit, by its symbol."""
    if sign := (match["after"] or match["before"] or "").strip(SPACES):
        return "%" if sign in "%％٪" else CURRENCIES.get(sign) or MEASURES.get(sign, sign)
    following = plain[match.end() : match.end() + _CONTEXT].lstrip(SPACES + "-").casefold()
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


def is_version(number: Number, text: str) -> bool:
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
