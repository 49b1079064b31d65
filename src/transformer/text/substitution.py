"""Numbers and addresses of a line hidden behind numbers that models copy, and put back into its translation."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import regex

from transformer.text.number_words import month_names, unit_names, write_date, write_euros
from transformer.text.numbers import Number, read_numbers, write_number
from transformer.text.spans import ADDRESS, blank_addresses, blank_tags

Languages = tuple[str, str]
"""Languages of a line and of its translation (BCP 47); empty if not known."""
Replacement = tuple[int, int, str]
"""Places of the first character of a span and after its last one, and the text that takes its place."""
NUMBERS: Final = ("30", "50", "40", "20", "70", "60", "80", "90")
"""Numbers that models copy reliably, since they are frequent in all corpora."""
TIMES: Final = ("8:30", "7:30", "9:30", "6:30", "5:30", "4:30", "3:30", "1:30")
"""Times of day that models copy."""
_WORD: Final = regex.compile(r"\S+")
DAYS: Final = ((30, 6, 0), (20, 6, 0), (20, 7, 0), (30, 7, 0), (20, 4, 0), (30, 4, 0), (20, 10, 0), (30, 10, 0))
"""Dates that models copy: day, month, and no year."""


@dataclass(frozen=True)
class StandIn:
    """A text that stands for a span of a line.

    Attributes:
        text: What the model reads.
        pattern: Regular expression of what it writes.
        written: What the translation has instead.
    """

    text: str
    pattern: str
    written: str


@dataclass(frozen=True)
class _Span:
    start: int
    end: int
    written: str
    number: Number | None = None


def _spans(line: str, languages: Languages) -> list[_Span]:
    """Returns the addresses and numbers of a line in order; several numbers with a space between are one."""
    plain = blank_tags(line)
    addresses = [_Span(*match.span(), match[0]) for match in ADDRESS.finditer(plain)]
    plain = blank_addresses(plain)
    numbers: list[_Span] = []
    for number in read_numbers(plain, languages[0]):
        previous = numbers[-1] if numbers else None
        follows = previous and previous.written[-1:].isdecimal() and line[previous.end : number.start] == " "
        if previous and follows and number.run.isdecimal():  # such as a telephone number
            numbers[-1] = _Span(previous.start, number.end, line[previous.start : number.end])
        else:
            numbers.append(_Span(number.start, number.end, write_number(number, plain, *languages), number))
    return sorted(addresses + numbers, key=lambda span: span.start)


def _stand_in(span: _Span, index: int, languages: Languages) -> StandIn:
    """Returns what stands for a span: a time for a time, a date for a date, euros for an amount, else a number."""
    number = span.number
    if number is not None and not number.run and (date := write_date(DAYS[index], languages[0])):
        day, month, _ = DAYS[index]
        names = "|".join(map(regex.escape, month_names(month, languages[1])))
        pattern = rf"(?:{names})\.? {day}(?:th)?|{day}(?:th|\.)? (?:of |de )?(?:{names})"
        return StandIn(date, pattern, span.written)
    if number is not None and (":" in number.run or number.clock):
        hour, minute = TIMES[index].split(":")
        return StandIn(TIMES[index], rf"{hour}[:.]{minute}", span.written)
    if number is not None and number.unit not in ("", "%"):
        shown, names = write_euros(NUMBERS[index], languages[0]), unit_names("EUR", languages[1])
        if shown and names:
            pattern = rf"{NUMBERS[index]} (?:{'|'.join(map(regex.escape, names))})s?"
            return StandIn(shown, pattern, span.written)
    return _plain_stand_in(span, index)


def _plain_stand_in(span: _Span, index: int) -> StandIn:
    return StandIn(NUMBERS[index], NUMBERS[index], span.written)


@dataclass(frozen=True)
class SubstitutedLine:
    """A line in which other numbers stand for numbers and addresses, so that the model copies them.

    Attributes:
        text: The line with substitutes.
        stand_ins: The substitutes.
        spans: Their places in the text, each with the text of the line that it stands for.
    """

    text: str
    stand_ins: tuple[StandIn, ...]
    spans: tuple[Replacement, ...]

    @classmethod
    def of(cls, line: str, changed: Sequence[str], attempt: int, languages: Languages) -> "SubstitutedLine | None":
        """Replaces the spans of a line; None unless it has 1 to 8 of them, with an unused substitute for each.

        Args:
            line: The line, whose tags stay as they are.
            changed: Spans that a translation changed; if none of them is a span of the line, all are replaced.
            attempt: Number of the attempt from 0; each has other substitutes,
                and every second one has plain numbers only.
            languages: Languages of the line and of its translation.
        """
        spans = _spans(line, languages)
        chosen = [span for span in spans if any(part in line[span.start : span.end] for part in changed)] or spans
        free = [index for index, number in enumerate(NUMBERS) if number not in line and TIMES[index] not in line]
        if not 1 <= len(chosen) <= len(free):
            return None
        rotated = free[attempt % len(free) :] + free[: attempt % len(free)]
        pairs = list(zip(chosen, rotated, strict=False))
        if attempt % 2:
            stand_ins = [_plain_stand_in(*pair) for pair in pairs]
        else:
            stand_ins = [_stand_in(*pair, languages) for pair in pairs]
        text, end = "", 0
        places: list[Replacement] = []
        for stand_in, span in zip(stand_ins, chosen, strict=True):
            text += line[end : span.start] + stand_in.text
            places.append((len(text) - len(stand_in.text), len(text), line[span.start : span.end]))
            end = span.end
        return cls(text + line[end:], tuple(stand_ins), tuple(places))

    def restore(self, translation: str) -> str:
        """Returns a translation of the line with the originals restored; empty unless it has each substitute once."""
        places = self._find(translation)
        return _replace(translation, places) if places else ""

    def map_words(self, translation: str) -> tuple[list[int], list[int]]:
        """Maps words of the line with substitutes, and of a translation, to those with the originals."""
        return _map_words(self.text, self.spans), _map_words(translation, self._find(translation))

    @cached_property
    def _pattern(self) -> regex.Pattern[str]:
        parts = "|".join(rf"(?P<s{index}>{stand_in.pattern})" for index, stand_in in enumerate(self.stand_ins))
        return regex.compile(rf"(?<![\w.,:/-])(?:{parts})(?![\w:/])(?![.,]\d)", regex.IGNORECASE)

    def _find(self, text: str) -> list[Replacement]:
        """Returns the places of the substitutes in a text; empty unless each stands there once, as separate words."""
        matches = list(self._pattern.finditer(text))
        if sorted(str(match.lastgroup) for match in matches) != [f"s{i}" for i in range(len(self.stand_ins))]:
            return []
        return [(*match.span(), self.stand_ins[int(str(match.lastgroup)[1:])].written) for match in matches]


def _replace(text: str, spans: Sequence[Replacement]) -> str:
    """Returns a text with other texts instead of its spans, which are in order."""
    parts, end = list[str](), 0
    for start, stop, other in spans:
        parts += [text[end:start], other]
        end = stop
    return "".join(parts) + text[end:]


def _map_words(text: str, spans: Sequence[Replacement]) -> list[int]:
    """Maps each word of a text to its word after `_replace`; those within a span to its first word."""
    starts = [match.start() for match in _WORD.finditer(_replace(text, spans))]
    remaining, shift = list(reversed(spans)), 0
    words: list[int] = []
    for match in _WORD.finditer(text):
        while remaining and remaining[-1][1] <= match.start():
            start, end, other = remaining.pop()
            shift += len(other) - (end - start)
        is_inside = remaining and remaining[-1][0] <= match.start()
        place = (remaining[-1][0] if is_inside else match.start()) + shift
        words.append(bisect_right(starts, place) - 1)
    return words
