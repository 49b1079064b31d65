"""Inline tags: removed from a line before it is translated, and restored around the corresponding words.

Positions are counted in units. A unit is a word (a run of letters and digits), or any other non-space character.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, count
from typing import Final

import regex

from transformer.text.line_splitting import merge_overlapping
from transformer.text.markup import BLOCK_ELEMENTS, TAG, Token, markup_tokens, matching_tags
from transformer.text.sentences import Span
from transformer.text.substitution import BREAK, MARK, TERM

UNIT: Final = re.compile(r"\w+|[^\w\s]")
_MARKS: Final = re.compile(f"([{MARK}])")
_BREAK: Final = re.compile(f"[{BREAK}]")
TERM_MARK: Final = re.compile(f"[{TERM}]")
"""Mark of the beginning or the end of a term."""
_TAG_OR_MARK: Final = regex.compile(f"{TAG.pattern}|[{MARK}]")
_MASKED: Final = "\ud800"
"""Lone surrogate, which does not occur in text; it masks the characters of tags."""
Readers = Callable[[], Mapping[int, int]]
"""Function that maps units of a line to the units of its translation that attend to them most."""
MAX_DEPTH: Final = 100
"""Maximum nesting depth of elements; tags that are nested more deeply are treated as unpaired."""


def count_units(text: str) -> int:
    """Returns the number of units of a text."""
    return len(UNIT.findall(text))


def indivisible_units(text: str, indivisible: regex.Pattern[str] | None) -> tuple[list[Span], list[int]]:
    """Merges the units of a text that overlap a match of `indivisible`, which tags must not split.

    Returns:
        The character spans of the merged units, and for each unit the index of the merged unit that contains it.
    """
    units = [match.span() for match in UNIT.finditer(text)]
    spans = [match.span() for match in indivisible.finditer(text)] if indivisible else []
    merged = merge_overlapping(units + spans)
    starts = [start for start, _ in merged]
    return merged, [bisect_right(starts, start) - 1 for start, _ in units]


@dataclass
class Element:
    """An unpaired tag, or a pair of tags with the elements they enclose.

    Attributes:
        opening: Opening tag, as written.
        closing: Closing tag; "" for an unpaired tag.
        start: Number of merged units of the line before the element, see `indivisible_units`.
        end: Number of merged units before the element's end, including those within it.
        spaced: For each of the two tags, whether it has a space, or an end of the line, on both sides.
        attached: Whether no space precedes the element.
        children: Elements directly within it, in order.
    """

    opening: str
    closing: str
    start: int
    end: int
    spaced: tuple[bool, bool]
    attached: bool
    children: "list[Element]" = field(default_factory=list)

    def tags_only(self) -> str:
        """Returns all tags of the element, with nothing between them."""
        return self.opening + "".join(child.tags_only() for child in self.children) + self.closing


@dataclass(frozen=True)
class TagFreeLine:
    """A line without its tags, and the positions of the tags.

    Attributes:
        text: Text without tags.
        merged_ids: Merged unit that contains each unit of the text, see `indivisible_units`.
        elements: Outermost elements, in order.
        tags: All tags, in order.
        offsets: Number of characters of the text before each tag.
        indivisible: Pattern of spans that tags must not split.
    """

    text: str
    merged_ids: Sequence[int] = ()
    elements: tuple[Element, ...] = ()
    tags: Sequence[str] = ()
    offsets: Sequence[int] = ()
    indivisible: regex.Pattern[str] | None = None

    @property
    def needs_alignment(self) -> bool:
        """Whether an element is at neither end of the line, and does not enclose it."""
        n_units = max(self.merged_ids, default=-1) + 1
        edges = (0, 0), (0, n_units), (n_units, n_units)
        return any(element.children or (element.start, element.end) not in edges for element in self.elements)


def strip_tags(line: str, indivisible: regex.Pattern[str] | None = None, *, has_tags: bool = True) -> TagFreeLine:
    """Removes the tags of a line. A tag without a matching opening or closing tag is treated as unpaired.

    So are the marks of hidden spans.

    Args:
        line: Line with tags.
        indivisible: Pattern of spans, in the line without tags and in its translation, that tags must not split.
        has_tags: Whether tags are removed, and not marks alone.
    """
    tokens = [*_with_marks(markup_tokens(line, "inline") if has_tags else [Token("text", line)])]
    if all(token.kind == "text" for token in tokens):
        return TagFreeLine(line)
    spaces_after = [True]
    for token in reversed(tokens):
        spaces_after.append(token.source[0].isspace() if token.kind == "text" else spaces_after[-1])
    text = ""
    tags: list[_Tag] = []
    for token, space_after in zip(tokens, spaces_after[-2::-1], strict=True):
        if token.kind == "text":
            text += token.source.lstrip() if text[-1:].isspace() else token.source
        else:
            tags.append(_Tag(token, len(text), text[-1:].strip() == "", space_after))
            text += " " * tags[-1].separates_words()
    units, merged_ids = indivisible_units(text, indivisible)
    indent = len(text) - len(text.lstrip())
    offsets = [tag.offset - indent for tag in tags]
    elements = tuple(_build_tree(tags, units))
    return TagFreeLine(text.strip(), merged_ids, elements, [tag.token.source for tag in tags], offsets, indivisible)


def _with_marks(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yields tokens, with marks of hidden spans as tags of their own."""
    for token in tokens:
        if token.kind != "text":
            yield token
            continue
        for part in filter(None, _MARKS.split(token.source)):
            if TERM_MARK.match(part):
                yield Token("end" if ord(part) % 2 else "start", part, chr(ord(part) - ord(part) % 2))
            else:
                name = "br" if _BREAK.match(part) else part
                yield Token("empty", part, name) if _MARKS.fullmatch(part) else Token("text", part)


@dataclass(frozen=True)
class _Tag:
    """A tag, its offset in the text without tags, and whether a space or an end of the line is on either side."""

    token: Token
    offset: int
    space_before: bool
    space_after: bool

    def separates_words(self) -> bool:
        return self.token.name in BLOCK_ELEMENTS and not self.space_before and not self.space_after


def _build_tree(tags: Sequence[_Tag], units: Sequence[Span]) -> list[Element]:
    """Builds the elements from the tags; a tag without a match becomes an unpaired element."""
    closed_by = matching_tags([tag.token for tag in tags])
    starts, ends = [start for start, _ in units], [end for _, end in units]
    stack: list[list[Element]] = [[]]
    closing: set[int] = set()
    for number, tag in enumerate(tags):
        if number in closing:
            stack.pop()
            continue
        last = tags[closed_by[number]] if number in closed_by and len(stack) <= MAX_DEPTH else None
        start = bisect_right(ends, tag.offset)
        end = max(start, bisect_left(starts, last.offset)) if last else start
        spaced = tuple(edge is not None and edge.space_before and edge.space_after for edge in (tag, last))
        sources = tag.token.source, last.token.source if last else ""
        element = Element(*sources, start, end, (spaced[0], spaced[1]), not tag.space_before)
        stack[-1].append(element)
        if last:
            stack.append(element.children)
            closing.add(closed_by[number])
    return stack[0]


@dataclass(frozen=True)
class RestoredLine:
    """A translation with the tags of its line.

    Attributes:
        text: Translation with all tags.
        empty: Opening tags of elements without any unit, which are left empty.
        beside: Opening tags of elements around the word beside that which attends to their content.
    """

    text: str
    empty: Sequence[str] = ()
    beside: Sequence[str] = ()


def restore_tags(
    line: TagFreeLine, translation: str, origins: Sequence[int | None], readers: Readers = dict[int, int]
) -> RestoredLine:
    """Inserts the tags of a line into its translation.

    An element encloses the run of units with the most units from inside it and the fewest from outside it, within the
    run of its parent. If no unit comes from it, it encloses the word that reads it most, or the free word that is next
    to that one. If it contains the whole line, it will contain the whole translation. A span that tags must not split
    counts as a single unit, whose origin is that of most of its units.

    Args:
        line: Line without tags, with the positions of its tags.
        translation: Translation of its text.
        origins: For each unit of the translation, the unit of the line that it comes from; None if unknown.
        readers: Function that returns, for units of the line, the unit of the translation that attends to it most.
    """
    units, merged_ids = indivisible_units(translation, line.indivisible)
    if not units or not line.elements:
        return RestoredLine("".join(element.tags_only() for element in line.elements) + translation)
    votes: list[Counter[int]] = [Counter() for _ in units]
    for unit, origin in zip(merged_ids, origins, strict=True):
        if origin is not None:
            votes[unit][line.merged_ids[origin]] += 1

    def read_by() -> dict[int, Counter[int]]:
        counts: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for unit, reader in readers().items():
            counts[line.merged_ids[unit]][merged_ids[reader]] += 1
        return counts

    texts = [translation[start:end] for start, end in units]
    placement = _TagPlacement([counts.most_common(1)[0][0] if counts else None for counts in votes], texts, read_by)
    placement.place(line.elements, (0, max(line.merged_ids, default=-1) + 1), (0, len(units)))
    text, position = "", 0
    for number, (start, end) in enumerate(units):
        before, after = placement.before[number], placement.after[number]
        text += translation[position:start] + "".join(before) + translation[start:end] + "".join(after)
        position = end
    return RestoredLine(text + translation[position:], placement.empty, placement.beside)


def tagged_word_ids(text: str, tagged: str) -> list[int]:
    """Maps each word of a text to the word of the same text with tags in which it begins.

    Words are separated by white space.
    """
    masked = _TAG_OR_MARK.sub(lambda tag: re.sub(r"\S", _MASKED, tag.group()), tagged)
    word_ids = [number for number, word in enumerate(masked.split()) for character in word if character != _MASKED]
    lengths = [len(word) for word in text.split()]
    return [word_ids[start] for start in accumulate(lengths[:-1], initial=0) if start < len(word_ids)]


class _TagPlacement:
    """The tags to insert before and after each unit of a translation."""

    def __init__(
        self, origins: Sequence[int | None], texts: Sequence[str], read_by: Callable[[], Mapping[int, Counter[int]]]
    ) -> None:
        self._origins, self._texts = origins, texts
        self._find_readers = cache(read_by)
        self.before: defaultdict[int, list[str]] = defaultdict(list)
        self.after: defaultdict[int, list[str]] = defaultdict(list)
        self.empty: list[str] = []
        self.beside: list[str] = []

    def place(self, elements: Sequence[Element], source: Span, target: Span) -> None:
        """Places sibling elements from the `source` units of the line within the `target` units."""
        runs = self._runs(elements, source, target)
        unpaired = [
            (element, self._insertion_point(element, source, target, runs))
            for n, element in enumerate(elements)
            if n not in runs
        ]
        follows = [(element.attached and point > target[0]) or point == target[1] for element, point in unpaired]
        for (element, point), is_after in zip(unpaired, follows, strict=True):
            if not is_after:
                self.before[point].append(element.tags_only() + " " * element.spaced[0])
        for number, run in runs.items():
            element = elements[number]
            self.before[run[0]].append(element.opening + " " * element.spaced[0])
            self.place(element.children, (element.start, element.end), run)
            self.after[run[1] - 1].append(" " * element.spaced[1] + element.closing)
        for (element, point), is_after in zip(unpaired, follows, strict=True):
            if is_after:
                self.after[point - 1].append(" " * element.spaced[0] + element.tags_only())

    def _runs(self, elements: Sequence[Element], source: Span, target: Span) -> dict[int, Span]:
        """Returns the units that each element encloses, largest elements first; empty ones are left out."""
        runs: dict[int, Span] = {}
        unread: list[int] = []
        taken: dict[int, int] = {}
        for number in sorted(range(len(elements)), key=lambda number: elements[number].start - elements[number].end):
            element = elements[number]
            if element.start == element.end:
                continue
            is_whole = (element.start, element.end) == source
            run = target if is_whole and not taken else self._best_run(element, target, taken)
            if run:
                runs[number] = run
                taken |= dict.fromkeys(range(*run), number)
            else:
                unread.append(number)
        for number in unread:
            run = self._reading_run(elements[number], target, runs, taken)
            if run:
                runs[number] = run
                taken |= dict.fromkeys(range(*run), number)
            else:
                self.empty.append(elements[number].opening)
        return runs

    def _reading_run(
        self, element: Element, target: Span, runs: dict[int, Span], taken: Mapping[int, int]
    ) -> Span | None:
        """Returns the run of units that read an element from which none comes; None if all are taken by its siblings.

        A sibling gives up a reader at an end of its run if words remain to it.

        Args:
            element: The element.
            target: Units that its parent encloses.
            runs: Units that its siblings enclose.
            taken: Sibling that encloses each unit.
        """
        if TERM_MARK.match(element.opening):
            return None
        counts = sum(
            (self._find_readers().get(unit, Counter()) for unit in range(element.start, element.end)), Counter()
        )
        wanted = [unit for unit, _ in counts.most_common() if self._is_word(unit, target)]
        for unit in wanted:
            if unit not in taken:
                return unit, next(end for end in count(unit + 1) if end in taken or end not in wanted)
        for unit in wanted:
            start, end = runs[taken[unit]]
            rest = (start + 1, end) if unit == start else (start, end - 1)
            if unit in (start, end - 1) and any(self._is_word(other, rest) for other in range(*rest)):
                runs[taken[unit]] = rest
                return unit, unit + 1
        near = [unit for reader in wanted[:1] for unit in (reader + 1, reader - 1)]
        for unit in near:
            if unit not in taken and self._is_word(unit, target):
                self.beside.append(element.opening)
                return unit, unit + 1
        return None

    def _is_word(self, unit: int, target: Span) -> bool:
        """Whether a unit within a span has a letter or digit."""
        return target[0] <= unit < target[1] and any(map(str.isalnum, self._texts[unit]))

    def _best_run(self, element: Element, target: Span, taken: Collection[int]) -> Span | None:
        """Returns the run of free units that maximizes the units from inside an element minus those from outside.

        Of equal runs, the first one is returned; for a term, the longest, since attention also goes to words beside it.
        """
        best, best_score, best_length = None, 0, 0
        is_term = TERM_MARK.match(element.opening) is not None
        start, score = None, 0
        for unit in range(*target):
            origin = self._origins[unit]
            if unit in taken:
                start = None
            elif origin is not None and element.start <= origin < element.end:
                start, score = (unit, 1) if start is None or score <= 0 else (start, score + 1)
                length = sum(map(len, self._texts[start : unit + 1])) if is_term else 0
                if (score, length) > (best_score, best_length):
                    best, best_score, best_length = (start, unit + 1), score, length
            elif start is not None and origin is not None:
                score -= 1
        return best

    def _insertion_point(self, element: Element, source: Span, target: Span, runs: Mapping[int, Span]) -> int:
        """Returns the unit before which an unpaired or empty element is inserted, never inside one of the runs."""
        unit, (first, last) = element.start, target
        if unit <= source[0]:
            return first
        if unit >= source[1]:
            return last
        from_unit, from_previous = (
            [i for i in range(first, last) if self._origins[i] == origin] for origin in (unit, unit - 1)
        )
        share = (unit - source[0]) / (source[1] - source[0])
        point = (
            from_unit[0]
            if from_unit
            else from_previous[-1] + 1
            if from_previous
            else first + round(share * (last - first))
        )
        return next((end for start, end in runs.values() if start < point < end), point)
