"""Spans of a line hidden behind words and numbers that models copy, and put back into its translation."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import regex

from transformer.text.normalization import INVISIBLE
from transformer.text.number_words import month_names, unit_names, write_date, write_euros
from transformer.text.number_writing import write_number
from transformer.text.numbers import Number, read_numbers
from transformer.text.spans import blank_kept

Languages = tuple[str, str]
"""Languages of a line and of its translation (BCP 47); empty if not known."""
Replacement = tuple[int, int, str]
"""Places of the first character of a span and after its last one, and the text that takes its place."""
NUMBERS: Final = ("30", "50", "40", "20", "70", "60", "80", "90")
"""Numbers that models copy reliably, since they are frequent in all corpora."""
TIMES: Final = ("8:30", "7:30", "9:30", "6:30", "5:30", "4:30", "3:30", "1:30")
"""Times of day that models copy."""
DAYS: Final = ((30, 6, 0), (20, 6, 0), (20, 7, 0), (30, 7, 0), (20, 4, 0), (30, 4, 0), (20, 10, 0), (30, 10, 0))
"""Dates that models copy: day, month, and no year."""
NAMES: Final = ("Boston", "Paris", "Tom", "Japan", "London", "Maria")
"""Names that stand for placeholders and addresses, see `benchmarks/translation/placeholders.py`."""
HIDING_ATTEMPTS: Final = 2
"""Number of ways in which a span is hidden."""
COUNTS: Final = ("25", "35", "17", "19")
"""Numbers that stand for placeholders of numbers."""
MARK: Final = "\U000f0000-\U000fffff"
"""Characters for private use, as the inside of a character class: each marks the place of a span that no word hides."""
_FIRST_MARK, _FIRST_BREAK, _FIRST_TERM = 0xF0000, 0xF8000, 0xF9000
BREAK: Final = "\U000f8000-\U000f8fff"
"""Those marks that separate words, also without a space."""
TERM: Final = "\U000f9000-\U000fffff"
"""Those marks that enclose a term: one with an even code before it, the next one after it."""
_UNSEEN: Final = frozenset({"accelerators", "escapes", "emoji", "edge"})
"""Kinds of spans that do not belong to a sentence."""
_COUNT: Final = regex.compile(r"%[^a-z]*(?:\(\w+\))?[-+#\d.]*[diuf]|\{\{?(?:n|i|num\w*|count|total)\}?\}")
_PAIRS: Final = frozenset({"()", "[]", "''", '""', "„“", "“”", "‚‘", "‘’", "«»", "»«"})
_OPENING_TAG: Final = regex.compile(r"<(\w+)[^<>]*>\Z")
_LABEL_END: Final = regex.compile(r"\s?:(?=\s)|\s[|–—-](?=\s)")
_LABEL: Final = regex.compile(r":\s*\Z")
_WORD: Final = regex.compile(r"\S+")
_TOUCHING_BEFORE: Final = regex.compile(r"(?<![\w$€£/=])[\w$€£/=]++\Z")
_TOUCHING_AFTER: Final = regex.compile(r"[\w%$€£/=]*+")
_MAX_SPANS: Final = 1000


@dataclass(frozen=True)
class StandIn:
    """A text that stands for a span of a line.

    Attributes:
        text: What the model reads.
        pattern: Regular expression of what it writes.
        written: What the translation has instead.
        sides: For a mark, the characters beside the span in the line, or empty texts.
        term: Source term if it is one, which the model sees.
    """

    text: str
    pattern: str
    written: str
    sides: tuple[str, str] | None = None
    term: str = ""


@dataclass(frozen=True)
class _Span:
    start: int
    end: int
    written: str
    number: Number | None = None
    kind: str = "numbers"


def _number_spans(line: str, languages: Languages) -> list[_Span]:
    """Returns the numbers of a line in order; several numbers with a space between are one."""
    plain = blank_kept(line)
    numbers: list[_Span] = []
    for number in read_numbers(plain, languages[0]):
        previous = numbers[-1] if numbers else None
        follows = previous and previous.written[-1:].isdecimal() and line[previous.end : number.start] == " "
        if previous and follows and number.run.isdecimal():  # such as a telephone number
            numbers[-1] = _Span(previous.start, number.end, line[previous.start : number.end])
        else:
            numbers.append(_Span(number.start, number.end, write_number(number, plain, *languages), number))
    return numbers


def _kept_spans(line: str, pattern: regex.Pattern[str]) -> list[_Span]:
    """Returns the spans of a line that are kept, without tags. Placeholders with signs alone between them are one span.

    Letters and some signs that touch a placeholder belong to it, such as a unit.
    """
    spans: list[_Span] = []
    for match in pattern.finditer(line):
        (start, end), kind = match.span(), str(match.lastgroup)
        if kind == "tags":
            continue
        before = spans[-1] if spans else None
        if before and start < before.end:
            continue
        if kind == "placeholders":
            touching = _TOUCHING_BEFORE.search(line, before.end if before else 0, start)
            start = touching.start() if touching else start
            end = _TOUCHING_AFTER.match(line, end).end()  # pyright: ignore[reportOptionalMemberAccess]
            if before and before.kind == kind and not regex.search(r"[\s\w]", line[before.end : start]):
                start = spans.pop().start
        if kind not in _UNSEEN:
            start, end = _with_enclosing(line, start, end)
        if not line[:start].strip() and (label_end := _LABEL_END.match(line, end)):
            end, kind = label_end.end(), "edge"
        elif end == len(line) and _LABEL.search(line[max(0, start - 9) : start]):
            kind = "edge"
        spans.append(_Span(start, end, line[start:end], kind=kind))
    return spans


def _with_enclosing(line: str, start: int, end: int) -> tuple[int, int]:
    """Returns a span with the brackets, quotation marks and tags that enclose it alone."""
    while start > 0 and end < len(line):
        tag = _OPENING_TAG.search(line[max(0, start - 200) : start])
        if line[start - 1] + line[end] in _PAIRS:
            start, end = start - 1, end + 1
        elif tag and line.startswith(closing := f"</{tag[1]}>", end):
            start, end = start - len(tag[0]), end + len(closing)
        else:
            break
    return start, end


def _stand_in(span: _Span, index: int, languages: Languages) -> StandIn:
    """Returns what stands for a span: a time for a time, a date for a date, euros for an amount, else a number."""
    number = span.number
    if number is not None and not number.run and (date := write_date(DAYS[index], languages[0])):
        day, month, _ = DAYS[index]
        names = "|".join(map(regex.escape, month_names(month, languages[1])))
        pattern = rf"(?:{names})\.? {day}(?:th)?|{day}(?:th|\.)? (?:of |de )?(?:{names})"
        return StandIn(date, _alone(pattern), span.written)
    if number is not None and (":" in number.run or number.clock):
        hour, minute = TIMES[index].split(":")
        return StandIn(TIMES[index], _alone(rf"{hour}[:.]{minute}"), span.written)
    if number is not None and number.unit not in ("", "%"):
        shown, names = write_euros(NUMBERS[index], languages[0]), unit_names("EUR", languages[1])
        if shown and names:
            pattern = rf"{NUMBERS[index]} (?:{'|'.join(map(regex.escape, names))})s?"
            return StandIn(shown, _alone(pattern), span.written)
    return _number_stand_in(span, NUMBERS[index])


def _number_stand_in(span: _Span, number: str) -> StandIn:
    return StandIn(number, _alone(number), span.written)


def _alone(pattern: str) -> str:
    """Returns a pattern that does not match within words and numbers."""
    return rf"(?<![\w.,:/-])(?:{pattern})(?![\w:/])(?![.,]\d)"


def _term_spans(line: str, terms: Sequence[tuple[str, str]], kept: Sequence[_Span]) -> Iterator[_Span]:
    """Yields the occurrences of terms in a line, without those that overlap others or spans that are kept.

    White space and invisible characters in the line may differ from those of the term.
    """
    taken = [(span.start, span.end) for span in kept]
    for source, target in sorted(terms, key=lambda term: -len(term[0])):
        letters = ((rf"(?:\s|{INVISIBLE})+" if letter == " " else regex.escape(letter)) for letter in source)
        for match in regex.finditer(rf"(?<!\w){rf'(?:{INVISIBLE})*'.join(letters)}(?!\w)", line):
            start, end = match.span()
            if all(end <= other_start or other_end <= start for other_start, other_end in taken):
                taken.append((start, end))
                yield _Span(start, end, target, kind="terms")


def _has_letter(text: str) -> bool:
    return any(map(str.isalnum, text))


def _has_word(text: str, word: str) -> bool:
    return regex.search(rf"(?<!\w){regex.escape(word)}(?!\w)", text) is not None


def _hide(span: _Span, line: str, index: int, names: Iterator[str], counts: Iterator[str]) -> StandIn:
    """Returns what hides a span: a number, a name, or a mark if the iterators have none; a term, marks around it."""
    if span.kind == "terms":
        opening, closing = chr(_FIRST_TERM + 2 * index), chr(_FIRST_TERM + 2 * index + 1)
        term = line[span.start : span.end]
        return StandIn(f"{opening}{term}{closing}", f"{opening}[^{closing}]*{closing}", span.written, term=term)
    is_count = span.kind == "numbers" or (span.kind == "placeholders" and _COUNT.fullmatch(span.written))
    if is_count and (number := next(counts, "")):
        return _number_stand_in(span, number)
    if span.kind not in _UNSEEN and not is_count and (name := next(names, "")):
        return StandIn(name, rf"(?<!\w){name}(?=s?(?!\w))", span.written)
    mark = chr((_FIRST_BREAK if span.kind in ("escapes", "entities") else _FIRST_MARK) + index)
    before = "" if span.kind == "accelerators" else line[: span.start][-1:]
    return StandIn(mark, mark, span.written, (before, line[span.end : span.end + 1]))


@dataclass(frozen=True)
class SubstitutedLine:
    """A line in which others, which the model copies, stand for some spans.

    Attributes:
        text: The line with substitutes.
        stand_ins: The substitutes.
        spans: Their places in the text, each with the text of the line that it stands for.
    """

    text: str
    stand_ins: tuple[StandIn, ...]
    spans: tuple[Replacement, ...]

    @classmethod
    def hiding(
        cls,
        line: str,
        pattern: regex.Pattern[str],
        names: Sequence[str],
        attempt: int,
        terms: Sequence[tuple[str, str]] = (),
    ) -> "SubstitutedLine | None":
        """Hides the spans of a line that are kept, and marks its terms; None if it has neither.

        Args:
            line: The line, whose tags stay as they are.
            pattern: Pattern of the spans, see `kept_pattern`.
            names: Names that the model copies.
            attempt: Number of the attempt from 0. From `HIDING_ATTEMPTS` - 1 on, the model sees no substitutes, but
                the line without the spans.
            terms: Source terms of the line with their target terms.
        """
        spans = _kept_spans(line, pattern)
        spans = sorted([*spans, *_term_spans(line, terms, spans)], key=lambda span: span.start)
        if not 1 <= len(spans) <= _MAX_SPANS:
            return None
        is_last = attempt >= HIDING_ATTEMPTS - 1
        free = [iter(() if is_last else [word for word in words if word not in line]) for words in (names, COUNTS)]
        stand_ins = [_hide(span, line, index, *free) for index, span in enumerate(spans)]
        return cls._replacing(line, spans, stand_ins)

    @classmethod
    def of_numbers(
        cls, line: str, changed: Sequence[str], attempt: int, languages: Languages
    ) -> "SubstitutedLine | None":
        """Replaces the numbers of a line; None unless it has 1 to 8 of them, with an unused substitute for each.

        Args:
            line: The line, whose tags stay as they are.
            changed: Spans that a translation changed; if none of them is a span of the line, all are replaced.
            attempt: Number of the attempt from 0; each has other substitutes,
                and every second one has plain numbers only.
            languages: Languages of the line and of its translation.
        """
        spans = _number_spans(line, languages)
        chosen = [span for span in spans if any(part in line[span.start : span.end] for part in changed)] or spans
        free = [index for index, number in enumerate(NUMBERS) if number not in line and TIMES[index] not in line]
        if not 1 <= len(chosen) <= len(free):
            return None
        rotated = free[attempt % len(free) :] + free[: attempt % len(free)]
        pairs = list(zip(chosen, rotated, strict=False))
        if attempt % 2:
            stand_ins = [_number_stand_in(span, NUMBERS[index]) for span, index in pairs]
        else:
            stand_ins = [_stand_in(*pair, languages) for pair in pairs]
        return cls._replacing(line, chosen, stand_ins)

    @classmethod
    def _replacing(cls, line: str, spans: Sequence[_Span], stand_ins: Sequence[StandIn]) -> "SubstitutedLine":
        text, end = "", 0
        places: list[Replacement] = []
        for stand_in, span in zip(stand_ins, spans, strict=True):
            text += line[end : span.start] + stand_in.text
            places.append((len(text) - len(stand_in.text), len(text), line[span.start : span.end]))
            end = span.end
        return cls(text + line[end:], tuple(stand_ins), tuple(places))

    @property
    def words(self) -> list[str]:
        """The words that hide spans."""
        return [stand_in.text for stand_in in self.stand_ins if not stand_in.sides and not stand_in.term]

    def terms_beside(self, translation: str) -> list[tuple[str, str]]:
        """Returns the terms, source and target, that `restore` puts beside other words, as none corresponds."""
        matches = self._pattern.finditer(translation)
        stand_ins = [(self.stand_ins[int(str(match.lastgroup)[1:])], match) for match in matches]
        return [
            (stand_in.term, stand_in.written)
            for stand_in, match in stand_ins
            if stand_in.term and not _has_letter(match[0]) and not _has_word(translation, stand_in.written)
        ]

    def is_complete(self, translation: str) -> bool:
        """Whether a translation of the line has each substitute once, as a separate word."""
        names = sorted(str(match.lastgroup) for match in self._pattern.finditer(translation))
        return names == sorted(f"s{index}" for index in range(len(self.stand_ins)))

    def restore(self, translation: str) -> str:
        """Returns a translation of the line with the originals instead of the substitutes."""
        return _replace(translation, self._find(translation))

    def map_words(self, translation: str) -> tuple[list[int], list[int]]:
        """Maps words of the line with substitutes, and of a translation, to those with the originals."""
        return _map_words(self.text, self.spans), _map_words(translation, self._find(translation))

    @cached_property
    def _pattern(self) -> regex.Pattern[str]:
        parts = "|".join(rf"(?P<s{index}>{stand_in.pattern})" for index, stand_in in enumerate(self.stand_ins))
        return regex.compile(parts, regex.IGNORECASE)

    def _find(self, text: str) -> list[Replacement]:
        """Returns the places of the substitutes in a text."""
        places: list[Replacement] = []
        for match in self._pattern.finditer(text):
            stand_in = self.stand_ins[int(str(match.lastgroup)[1:])]
            start, end, written = *match.span(), stand_in.written
            sides = stand_in.sides
            if stand_in.term:
                content = match[0][1:-1]
                if _has_word(text, written):  # the model has written the term itself, here or elsewhere
                    written = content
                elif not _has_letter(content):
                    written, sides = written + content, (" ", " " * (not content))
            if sides:
                start = max(places[-1][1] if places else 0, len(text[:start].rstrip()))
                end += len(text[end:]) - len(text[end:].lstrip())
                left = places[-1][2][-1:] if places and places[-1][1] == start else text[:start][-1:]
                spaces = (
                    _space_beside(sides[0], left, "([{«„“"),
                    _space_beside(sides[1], text[end : end + 1], ".,;:!?…)]}»”"),
                )
                written = spaces[0] + written + spaces[1]
            places.append((start, end, written))
        return places


def _space_beside(source: str, target: str, attached: str) -> str:
    """Returns the space between a restored span and the character beside it.

    Args:
        source: Character beside the span in the line; empty at its edge.
        target: Character beside it in the translation.
        attached: Signs that no space separates from a word.
    """
    if not target or target.isspace() or source.isalnum():
        return ""
    is_word = not source or source.isspace()
    return " " * (target not in attached if is_word else target.isalnum())


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
        if is_inside:
            start, _, other = remaining[-1]
            place = start + shift + len(other) - len(other.lstrip())
        else:
            place = match.start() + shift
        words.append(bisect_right(starts, place) - 1)
    return words
