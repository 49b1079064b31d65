"""Tags of a line: taken out before it is translated, put back around what its translation makes of their words.

Places are counted in units: a word (letters and digits in a row) or another character that is no space.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

TAG: Final = r"</?[A-Za-z][\w:-]*+(?:\s+[\w:-]++=(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s\"'<>]+))*+\s*/?>"
UNIT: Final = re.compile(r"\w+|[^\w\s]")
_TAG, _NAME = re.compile(TAG), re.compile(r"</?([\w:-]+)")
_PARTING: Final = frozenset(
    ["br", "dd", "div", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "td", "th", "tr", "ul"]
)
"""Elements at whose ends words end, though no space stands there."""
Span = tuple[int, int]
"""Units from the first one to before the second, or characters."""
_HIDDEN: Final = "\ud800"
"""Half a character, which no text holds."""
DEEPEST: Final = 100
"""Elements within each other; tags within more of them stand alone."""


def count_units(text: str) -> int:
    """How many units a text has."""
    return len(UNIT.findall(text))


def whole_units(text: str, whole: re.Pattern[str] | None) -> tuple[list[Span], list[int]]:
    """What tags may stand around: the units of a text, those together that share in a span that `whole` finds.

    Returns:
        The characters of each, and for each unit which of them it is part of.
    """
    units = [match.span() for match in UNIT.finditer(text)]
    spans = [match.span() for match in whole.finditer(text)] if whole else []
    found: list[Span] = []
    for start, end in sorted(units + spans):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    starts = [start for start, _ in found]
    return found, [bisect_right(starts, start) - 1 for start, _ in units]


@dataclass
class Element:
    """A tag that stands alone, or two and what they enclose.

    Attributes:
        opening: the tag as it was written.
        closing: the tag that closes it; "" of a tag that stands alone.
        start: units of the line before it, as of `whole_units`.
        end: units before its end, those within it counted.
        free: for each tag, whether spaces, or the ends of the line, are on both its sides.
        leans: no space is before it.
        inner: the elements within it, in order.
    """

    opening: str
    closing: str
    start: int
    end: int
    free: tuple[bool, bool]
    leans: bool
    inner: "list[Element]" = field(default_factory=list)

    def bare(self) -> str:
        """All its tags, with nothing between them."""
        return self.opening + "".join(each.bare() for each in self.inner) + self.closing


@dataclass(frozen=True)
class TagFreeLine:
    """A line without its tags, and where they were.

    Attributes:
        text: without them.
        part_of: of which of its `whole_units` each of its units is part.
        elements: the outermost ones, in order.
        tags: all of them, in order.
        places: of each tag, how many characters of the text are before it.
        whole: finds the spans of a text that no tag is to part.
    """

    text: str
    part_of: Sequence[int] = ()
    elements: tuple[Element, ...] = ()
    tags: Sequence[str] = ()
    places: Sequence[int] = ()
    whole: re.Pattern[str] | None = None

    @property
    def units(self) -> int:
        """How many units the text has, if it had tags."""
        return len(self.part_of)


def without_tags(line: str, whole: re.Pattern[str] | None = None) -> TagFreeLine:
    """Takes the tags out of a line. A tag that nothing closes, or that closes nothing, stands alone.

    Args:
        line: with tags.
        whole: finds the spans, of the line without tags and of its translation, that no tag is to part.
    """
    found = list(_TAG.finditer(line))
    if not found:
        return TagFreeLine(line)
    edges = [0, *(edge for match in found for edge in match.span()), len(line)]
    text, *parts = (line[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    tags: list[_Tag] = []
    for place, (match, part) in enumerate(zip(found, parts, strict=True)):
        follows = next((each[0] for each in parts[place:] if each), " ")
        tags.append(_Tag(match.group(), len(text), text[-1:].strip() == "", follows.isspace()))
        text += " " * tags[-1].parts_words() + (part.lstrip() if text[-1:].isspace() else part)
    units, part_of = whole_units(text, whole)
    lead = len(text) - len(text.lstrip())
    places = [tag.place - lead for tag in tags]
    return TagFreeLine(text.strip(), part_of, tuple(_tree(tags, units)), [tag.text for tag in tags], places, whole)


@dataclass(frozen=True)
class _Tag:
    """A tag, where it stands in the text without tags, and whether spaces or ends are before and after it."""

    text: str
    place: int
    space_before: bool
    space_after: bool

    def name(self) -> str:
        found = _NAME.match(self.text)
        return found[1].lower() if found else ""

    def parts_words(self) -> bool:
        return self.name() in _PARTING and not self.space_before and not self.space_after


def _tree(tags: Sequence[_Tag], units: Sequence[tuple[int, int]]) -> list[Element]:
    """The elements that tags make; what nothing closes, or closes nothing, stands alone."""
    closed_by = _pairs(tags)
    closing = set(closed_by.values())
    starts, ends = [start for start, _ in units], [end for _, end in units]
    around: list[list[Element]] = [[]]
    for number, tag in enumerate(tags):
        if number in closing:
            around.pop()
            continue
        last = tags[closed_by[number]] if number in closed_by else None
        start = bisect_right(ends, tag.place)
        end = max(start, bisect_left(starts, last.place)) if last else start
        free = tuple(each is not None and each.space_before and each.space_after for each in (tag, last))
        element = Element(tag.text, last.text if last else "", start, end, (free[0], free[1]), not tag.space_before)
        around[-1].append(element)
        if last:
            around.append(element.inner)
    return around[0]


def _pairs(tags: Sequence[_Tag]) -> dict[int, int]:
    """Which tag each opening one is closed by; what is opened within and not closed is left out."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for number, tag in enumerate(tags):
        if not tag.text.startswith("</"):
            opened += [number] * (not tag.text.endswith("/>") and len(opened) < DEEPEST)
        elif tag.name() in (names := [tags[each].name() for each in opened]):
            place = len(names) - 1 - names[::-1].index(tag.name())
            pairs[opened[place]] = number
            del opened[place:]
    return pairs


def with_tags(line: TagFreeLine, translation: str, origins: Sequence[int | None]) -> tuple[str, list[str]]:
    """Puts the tags of a line into its translation.

    An element encloses the run of units with most that come from within it, and fewest that come from elsewhere; all
    within a larger element, if it was within one. What encloses the whole line encloses the whole translation. A span
    that no tag is to part counts as one unit, from where most of its units come.

    Args:
        line: with the places of its tags.
        translation: of its text.
        origins: for each unit of the translation, the unit of the line that it comes from; None if from none.

    Returns:
        The translation with every tag, and the opening tags of elements with which no unit goes, which are empty.
    """
    units, part_of = whole_units(translation, line.whole)
    if not units or not line.elements:
        return "".join(each.bare() for each in line.elements) + translation, []
    of_wholes: list[Counter[int]] = [Counter() for _ in units]
    for unit, origin in zip(part_of, origins, strict=True):
        if origin is not None:
            of_wholes[unit][line.part_of[origin]] += 1
    placing = _Placing([found.most_common(1)[0][0] if found else None for found in of_wholes])
    placing.place(line.elements, (0, max(line.part_of, default=-1) + 1), (0, len(units)))
    text, done = "", 0
    for number, (start, end) in enumerate(units):
        before, behind = placing.before[number], placing.behind[number]
        text += translation[done:start] + "".join(before) + translation[start:end] + "".join(behind)
        done = end
    return text + translation[done:], placing.lost


def words_with_tags(text: str, tagged: str) -> list[int]:
    """For each word of a text, the word in which it begins of the same text with tags; white space parts words."""
    hidden = _TAG.sub(lambda tag: re.sub(r"\S", _HIDDEN, tag.group()), tagged)
    owners = [number for number, word in enumerate(hidden.split()) for character in word if character != _HIDDEN]
    lengths = [len(word) for word in text.split()]
    return [owners[place] for place in accumulate(lengths[:-1], initial=0) if place < len(owners)]


class _Placing:
    """What is written before and behind each unit of a translation."""

    def __init__(self, origins: Sequence[int | None]) -> None:
        self._origins = origins
        self.before: defaultdict[int, list[str]] = defaultdict(list)
        self.behind: defaultdict[int, list[str]] = defaultdict(list)
        self.lost: list[str] = []

    def place(self, elements: Sequence[Element], source: Span, target: Span) -> None:
        """Places elements that stand next to each other within `source` units of the line, within `target` units."""
        runs = self._runs(elements, source, target)
        alone = [
            (element, self._gap(element, source, target, runs)) for n, element in enumerate(elements) if n not in runs
        ]
        late = [(element.leans and gap > target[0]) or gap == target[1] for element, gap in alone]
        for (element, gap), is_late in zip(alone, late, strict=True):
            if not is_late:
                self.before[gap].append(element.bare() + " " * element.free[0])
        for number, run in runs.items():
            element = elements[number]
            self.before[run[0]].append(element.opening + " " * element.free[0])
            self.place(element.inner, (element.start, element.end), run)
            self.behind[run[1] - 1].append(" " * element.free[1] + element.closing)
        for (element, gap), is_late in zip(alone, late, strict=True):
            if is_late:
                self.behind[gap - 1].append(" " * element.free[0] + element.bare())

    def _runs(self, elements: Sequence[Element], source: Span, target: Span) -> dict[int, Span]:
        """What each element encloses, the largest ones first; those that nothing comes from within are left out."""
        runs: dict[int, Span] = {}
        taken: set[int] = set()
        for number in sorted(range(len(elements)), key=lambda number: elements[number].start - elements[number].end):
            element = elements[number]
            if element.start == element.end:
                continue
            is_whole = (element.start, element.end) == source
            run = target if is_whole and not taken else self._best_run(element, target, taken)
            if run:
                runs[number] = run
                taken.update(range(*run))
            else:
                self.lost.append(element.opening)
        return runs

    def _best_run(self, element: Element, target: Span, taken: set[int]) -> Span | None:
        """The units with most from within an element, less those from elsewhere, none of them taken."""
        best, most = None, 0
        begin, value = None, 0
        for unit in range(*target):
            origin = self._origins[unit]
            if unit in taken:
                begin = None
            elif origin is not None and element.start <= origin < element.end:
                begin, value = (unit, 1) if begin is None or value <= 0 else (begin, value + 1)
                if value > most:
                    best, most = (begin, unit + 1), value
            elif begin is not None and origin is not None:
                value -= 1
        return best

    def _gap(self, element: Element, source: Span, target: Span, runs: Mapping[int, Span]) -> int:
        """Before which unit a tag comes to stand that stands alone, or encloses nothing; within none of the runs."""
        unit, (first, last) = element.start, target
        if unit <= source[0]:
            return first
        if unit >= source[1]:
            return last
        own, before = (
            [place for place in range(first, last) if self._origins[place] == each] for each in (unit, unit - 1)
        )
        share = (unit - source[0]) / (source[1] - source[0])
        gap = own[0] if own else before[-1] + 1 if before else first + round(share * (last - first))
        return next((end for begin, end in runs.values() if begin < gap < end), gap)
