"""The writing of numbers by language: separators, months, currencies, percent, and words (Unicode CLDR, text2num)."""

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import regex

if TYPE_CHECKING:
    from babel import Locale

# babel and text2num are imported where they are used, since they take a moment to load.

CURRENCIES: Final = {"€": "EUR", "$": "USD", "£": "GBP", "¥": "JPY", "₹": "INR", "₽": "RUB", "₩": "KRW", "₺": "TRY"}
"""Currencies by their symbols, which may belong to several."""
MEASURES: Final = {
    "mg": "mass-milligram", "µg": "mass-microgram", "μg": "mass-microgram", "g": "mass-gram", "kg": "mass-kilogram",
    "mm": "length-millimeter", "cm": "length-centimeter", "m": "length-meter", "km": "length-kilometer",
    "ml": "volume-milliliter", "mL": "volume-milliliter", "cl": "volume-centiliter", "dl": "volume-deciliter",
    "l": "volume-liter", "L": "volume-liter", "km/h": "speed-kilometer-per-hour", "°C": "temperature-celsius",
    "°F": "temperature-fahrenheit", "kW": "power-kilowatt", "kWh": "energy-kilowatt-hour", "Hz": "frequency-hertz",
    "kHz": "frequency-kilohertz", "MHz": "frequency-megahertz", "GHz": "frequency-gigahertz",
    "kB": "digital-kilobyte", "MB": "digital-megabyte", "GB": "digital-gigabyte", "TB": "digital-terabyte",
}  # fmt: skip
"""Units of CLDR by symbols that are the same in all languages with Latin letters."""
MAX_WORDS: Final = 10_000
"""Number of characters of a text whose numbers in words are looked for; further ones are not read."""


@lru_cache(maxsize=256)
def locale_of(language: str) -> "Locale | None":
    """Returns the locale of a language tag (BCP 47), or of its language alone; None if CLDR has none."""
    from babel import Locale, UnknownLocaleError

    for tag in (language, language.partition("-")[0]):
        try:
            return Locale.parse(tag, sep="-")
        except (ValueError, UnknownLocaleError):  # also an empty tag
            continue
    return None


@lru_cache(maxsize=256)
def separators(language: str) -> tuple[str, str]:
    """Returns the separators of decimals and of thousands; empty strings if the language is not known."""
    locale = locale_of(language)
    if locale is None:
        return "", ""
    symbols = locale.number_symbols["latn"]
    return symbols["decimal"], symbols["group"]


@lru_cache(maxsize=256)
def puts_currency_first(language: str) -> bool | None:
    """Whether a currency's symbol stands before its amount; None if the language is not known."""
    locale = locale_of(language)
    return None if locale is None else locale.currency_formats["standard"].pattern.startswith("¤")


@lru_cache(maxsize=256)
def uses_24_hours(language: str) -> bool:
    """Whether a language usually writes 14:30 rather than 2:30 pm; False if it is not known."""
    locale = locale_of(language)
    return locale is not None and "H" in locale.time_formats["short"].pattern


@lru_cache(maxsize=4096)
def month_names(month: int, language: str) -> tuple[str, ...]:
    """Returns the names of a month, folded, without points."""
    locale = locale_of(language)
    if locale is None:
        return ()
    widths = [
        locale.months[context][width] for context in ("format", "stand-alone") for width in ("wide", "abbreviated")
    ]
    return tuple(dict.fromkeys(names[month].casefold().rstrip(".") for names in widths))


def write_date(date: tuple[int, int, int], language: str) -> str:
    """Returns a date with the name of its month; empty if it is not valid, or the language not known.

    Args:
        date: Day, month and year, which is 0 if it is not given.
        language: Language (BCP 47).
    """
    from datetime import date as Date

    from babel.dates import format_date, format_skeleton

    day, month, year = date
    locale = locale_of(language)
    try:
        value = Date(year or 2000, month, day)
    except ValueError:
        return ""
    if locale is None:
        return ""
    return format_date(value, "long", locale) if year else format_skeleton("MMMMd", value, locale=locale)


@lru_cache(maxsize=1024)
def unit_names(unit: str, language: str) -> tuple[str, ...]:
    """Returns words that name a unit, folded: `%`, a currency by its code (`EUR`), or a unit of `MEASURES`.

    The words for a unit such as `speed-kilometer-per-hour` are the first ones of its names: `kilometer` and `km`.
    """
    from babel import Locale
    from babel.numbers import get_currency_name
    from babel.units import format_unit, get_unit_name

    locale = locale_of(language)
    if locale is None:
        return ()
    if unit == "%":
        names = [get_unit_name("concentr-percent", "long", locale) or ""]
    elif unit in MEASURES.values():
        locales = [locale, *([Locale("en", "GB")] if locale.language == "en" else [])]
        forms = [
            format_unit(number, unit, length, "#", locale=one)
            for one in locales for length in ("long", "short") for number in (1, 2, 5)
        ]  # fmt: skip
        names = [word for form in forms for word in regex.findall(r"\p{L}{2,}|°", form)[:1]]
        names += ["kilo"] if unit == MEASURES["kg"] else []
    else:
        names = [get_currency_name(unit, count=count, locale=locale) for count in (None, 1, 2, 5)]
        names = [word for name in names for word in regex.split(r"[\s-]", name) if len(word) > len("USD")]
    return tuple(dict.fromkeys(name.casefold() for name in names if name))


@lru_cache(maxsize=256)
def write_euros(number: str, language: str) -> str:
    """Returns an amount in euros, such as `30 euros` or `30 Euro`; empty if the language is not known."""
    from babel.numbers import get_currency_name

    locale = locale_of(language)
    return "" if locale is None else f"{number} {get_currency_name('EUR', count=int(number), locale=locale)}"


def numbers_in_words(text: str, language: str) -> str:
    """Returns a text with digits instead of its numbers in words, e.g. `22 cats` for `twenty-two cats`.

    The text stays as it is in a language whose numbers `text2num` does not read.
    """
    from text_to_num import alpha2digit

    base = language.partition("-")[0]
    if not base or base in _unread:
        return text
    try:
        return alpha2digit(text[:MAX_WORDS], base, 0.0)
    except ValueError:
        _unread.add(base)
        return text


_unread: Final[set[str]] = set()
"""Languages that text2num does not read."""


@lru_cache(maxsize=1 << 16)
def power_of_ten(word: str, language: str) -> int:
    """Returns the power of ten that a word multiplies the number before it by, e.g. 6 for `million`; 0 if none."""
    if power := _POWERS.get(word) or _POWERS.get(word.casefold()):
        return power
    if not word.isalpha() or len(word) > _LONGEST_WORD:
        return 0
    digits = numbers_in_words(word, language)
    is_power = digits in _WRITTEN_POWERS
    return len(digits) - 1 if is_power else 0


_LONGEST_WORD: Final = 20
_WRITTEN_POWERS: Final = frozenset(f"1{'0' * zeros}" for zeros in (3, 6, 9, 12))
_POWERS: Final = {
    "k": 3, "tsd": 3, "千": 3, "bn": 9, "mio": 6, "mln": 6, "mrd": 9, "mld": 9, "тыс": 3, "млн": 6, "млрд": 9,
    "万": 4, "萬": 4, "만": 4, "億": 8, "亿": 8, "억": 8, "兆": 12, "조": 12,
}  # fmt: skip
