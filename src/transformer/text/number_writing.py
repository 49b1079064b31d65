"""Numbers written as another language writes them: separators, currencies, dates and times of day."""

from transformer.text.number_values import FRACTIONS, SPACES, is_grouped, numeric_values, split_groups
from transformer.text.number_words import CURRENCIES, puts_currency_first, separators, uses_24_hours, write_date
from transformer.text.numbers import Number, is_version, read_numbers


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
    symbol = next((symbol for symbol in CURRENCIES if symbol in written), "")
    is_first = puts_currency_first(target_language)
    if not symbol or is_first is None or is_first == (puts_currency_first(source_language) or False):
        return written
    amount = written.replace(symbol, "").strip(SPACES)
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
    if not number.unit and is_version(number, text):
        return number.run
    return _convert(number.run, source_language, target_language)


def _convert(run: str, source_language: str, target_language: str) -> str:
    """Returns digits with the separators of another language."""
    decimal, thousands = separators(target_language)
    groups, marks = split_groups(run)
    source_decimal, _ = separators(source_language)
    if (
        not run[:1].isdigit()
        or not marks
        or not decimal
        or not source_decimal
        or run[-1] in FRACTIONS
        or set(marks) & set(":/-hH")
    ):
        return run
    if len(set(marks)) == 1 and is_grouped(groups) and (len(marks) > 1 or marks[0] != source_decimal):
        return thousands.join(groups)
    if marks[-1] not in (source_decimal, "٫") or not numeric_values(groups, marks, source_language):
        return run
    return thousands.join(groups[:-1]) + decimal + groups[-1]
