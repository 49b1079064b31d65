"""Plural forms of languages, as the headers of PO files write them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from gettext import c2py
from typing import Final

import regex

from transformer.text.languages import parse_language

_FORMS: Final = regex.compile(r"nplurals\s*+=\s*+(?P<count>\d{1,2})\s*+;\s*+plural\s*+=(?P<formula>[^;]++)")
_CONVENTIONAL: Final = {
    **dict.fromkeys(("ca", "es", "it", "pt"), (2, "(n != 1)")),
    **dict.fromkeys(("fr", "pt_BR"), (2, "(n > 1)")),
}
"""Forms that gettext uses where Unicode CLDR has a form of its own for millions."""
CATEGORIES: Final = ("zero", "one", "two", "few", "many", "other")
"""Names of plural forms in Unicode CLDR."""
SAMPLE: Final = 200
"""Numbers below this one show which of them share a form."""


@dataclass(frozen=True)
class PluralForms:
    """The plural forms of a language.

    Attributes:
        count: Number of forms.
        formula: Expression in C of a number `n` that returns the index of its form.
    """

    count: int
    formula: str

    def __str__(self) -> str:
        """Returns the value of the header `Plural-Forms`."""
        return f"nplurals={self.count}; plural={self.formula};"

    @cached_property
    def singular(self) -> tuple[int, bool]:
        """The index of the form of 1, and whether no other number has it."""
        index: Callable[[int], int] = c2py(self.formula)
        one = index(1)
        return one, all(index(number) != one for number in range(SAMPLE) if number != 1)


def parse_plural_forms(value: str) -> PluralForms | None:
    """Returns the forms that a header gives; None if it gives none that are valid."""
    match = _FORMS.search(value)
    if match is None or not 1 <= int(match["count"]) <= 16:
        return None
    forms = PluralForms(int(match["count"]), match["formula"].strip())
    try:
        return forms if 0 <= forms.singular[0] < forms.count else None
    except (ValueError, ArithmeticError, RecursionError):
        return None


def plural_forms(language: str) -> PluralForms | None:
    """Returns the forms of a language (BCP 47); None if they are not known.

    Source: the table of GNU gettext, and Unicode CLDR as babel has it.
    """
    from babel.messages.plurals import PLURALS

    tag = (parse_language(language) or "").replace("-", "_")
    for name in (tag, tag.partition("_")[0]):
        table = _CONVENTIONAL if name in _CONVENTIONAL else PLURALS
        if name in table:
            return PluralForms(*table[name])
    return None


def plural_categories(language: str) -> frozenset[str]:
    """Returns the names of the plural forms of a language (BCP 47), e.g. `one` and `other`; none if it is not known.

    Source: Unicode CLDR as babel has it.
    """
    from babel import Locale, UnknownLocaleError

    tag = (parse_language(language) or "").partition("-")[0]
    try:
        tags = Locale.parse(tag).plural_form.tags if tag else None
    except (UnknownLocaleError, ValueError):
        tags = None
    if tags is None:
        return frozenset()
    return frozenset({*tags, "other"} - ({"many"} if tag in _CONVENTIONAL else set()))
