"""Comparison of the numbers and addresses of a line with those of its translation."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from transformer.text.number_comparison import NumberDifferences, compare_numbers
from transformer.text.numbers import has_digit
from transformer.text.sentences import has_letter
from transformer.text.spans import ADDRESS, blank_kept, blank_tags


@dataclass(frozen=True)
class SpanChanges:
    """Numbers and addresses that a line and its translation do not share.

    Attributes:
        missing: Those of the line that its translation lacks or changes.
        invented: Those of the translation that the line does not have.
        numbers: Those of both that are numbers.
    """

    missing: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.missing or self.invented)

    @property
    def flag(self) -> str:
        """The flag that names them."""
        if not self.missing:
            return f"the translation adds {quote_spans(self.invented)}"
        if not self.invented:
            return f"the translation lacks {quote_spans(self.missing)}"
        return f"the translation has {quote_spans(self.invented)} instead of {quote_spans(self.missing)}"


NO_CHANGES: Final = SpanChanges()


def compare_spans(
    line: str, translation: str, languages: tuple[str, str], *, with_addresses: bool = True
) -> SpanChanges:
    """Returns the numbers and addresses that a line and its translation do not share; none if the line has no letter.

    Args:
        line: The line, whose tags do not count.
        translation: Its translation.
        languages: Languages of both (BCP 47); empty if not known.
        with_addresses: Whether addresses are compared, and not numbers alone.
    """
    if not has_letter(line):
        return NO_CHANGES
    sides = line, translation
    addresses = [Counter(ADDRESS.findall(blank_tags(text)) if with_addresses else ()) for text in sides]
    numbers = NumberDifferences()
    if any(map(has_digit, sides)):
        plain = blank_kept(line, identifiers=False), blank_kept(translation, identifiers=False)
        numbers = compare_numbers(plain, languages)
    missing, invented = ([number.text for number in side] for side in (numbers.missing, numbers.invented))
    return SpanChanges(
        (*(addresses[0] - addresses[1]), *missing), (*(addresses[1] - addresses[0]), *invented), (*missing, *invented)
    )


def quote_spans(spans: Sequence[str]) -> str:
    """Quotes spans for a flag, up to 100 characters."""
    return f"{', '.join(map(repr, spans)):.100}"
