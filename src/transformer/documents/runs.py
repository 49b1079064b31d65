"""Paragraphs of OOXML (ECMA-376): runs of characters of one format, merged where their formats are equal.

A code between two texts ends the run before it and begins another, so that codes may be written in any order. As long
as neighbours are those of the source, the markup between texts is written as it stands.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import regex

from transformer.documents.passages import Edges, Passage, Piece, read_passage
from transformer.documents.run_items import Item, Layout
from transformer.documents.text_file import TextFile
from transformer.documents.xml import SPACED_TEXT

_IGNORED_PROPERTIES: Final = regex.compile(
    r"<w:(?:lang|noProof|webHidden)\b[^<>]*+>|\s(?:lang|altLang|dirty|err|smtClean|noProof|bmk)=\"[^\"]*+\""
)
"""Properties of a run that do not change how it looks."""


@dataclass
class _Builder:
    """Builds the pieces of a passage from the items of a paragraph.

    Attributes:
        layout: Names of elements.
        file: The file.
        bases: Properties of most of the text within each element that encloses text; 0 is the paragraph.
        levels: Numbers of the open elements.
        open_format: Key and properties of the format that is open and differs from the base.
        pieces: Pieces so far.
    """

    layout: Layout
    file: TextFile
    bases: dict[int, str]
    levels: list[int] = field(default_factory=lambda: [0])
    open_format: tuple[str, str] | None = None
    pieces: list[Piece] = field(default_factory=list[Piece])
    n_formats: int = 0

    @property
    def base(self) -> str:
        return self.bases.get(self.levels[-1], self.bases[0])

    @property
    def properties(self) -> str:
        """Properties of the text that follows."""
        return self.open_format[1] if self.open_format else self.base

    def gap(self, items: Sequence[Item], start: int, end: int, following: str | None) -> None:
        """Adds the markup between two texts.

        Args:
            items: Items of the gap.
            start: Where it begins in the file.
            end: Its exclusive end.
            following: Properties of the text behind it; None if there is none.
        """
        layout = self.layout
        marks: list[tuple[Literal["start", "end", "empty"], str, list[str | tuple[int, int]]]] = []
        encloses = any(item.kind in ("start", "end") for item in items)
        is_changed = following is None or not _look_equal(following, self.properties)
        if self.open_format and (encloses or is_changed):
            key = self.open_format[0]
            self.open_format = None
            marks.append(("end", key, [layout.close_run, layout.open_run(self.base)]))
        hidden: list[str | tuple[int, int]] = []
        for item in items:
            if item.kind == "hidden":
                hidden += layout.beside_text(item, self.properties)
            elif item.kind == "object":
                marks.append(("empty", "", layout.beside_text(item, self.properties)))
            else:
                if item.kind == "start":
                    self.levels.append(item.number)
                elif len(self.levels) > 1:
                    self.levels.pop()
                kind = "start" if item.kind == "start" else "end"
                marks.append((kind, f"element {item.number}", layout.beside_text(item, self.base)))
        if following is not None and not self.open_format and not _look_equal(following, self.base):
            self.n_formats += 1
            self.open_format = f"format {self.n_formats}", following
            marks.append(("start", self.open_format[0], [layout.close_run, layout.open_run(following)]))
        for number, (kind, pair, alone) in enumerate(marks):
            place = start if number == 0 else end
            self.pieces.append(Piece(place, end, kind, pair, [*alone, *(() if number else hidden)]))
        if not marks and start < end:
            self.pieces.append(Piece(start, end, "hidden"))


def read_run_passage(file: TextFile, items: Sequence[Item], layout: Layout) -> Passage | None:
    """Reads the text of a paragraph, or of a part of it between line breaks; None if it has no text.

    Args:
        file: The file.
        items: Items of the paragraph, in order.
        layout: Names of elements.
    """
    texts = [index for index, item in enumerate(items) if item.kind == "text" and item.end > item.start]
    if not texts:
        return None
    first, last = _extended(items, texts[0], texts[-1])
    is_text = {*texts}
    builder = _Builder(layout, file, _bases(items[first : last + 1]))
    position = items[first].start if first == texts[0] else items[first].outer_start
    gap: list[Item] = []
    for index in range(first, last + 1):
        item = items[index]
        if index not in is_text:
            gap += [item] if item.kind != "text" else []
            continue
        builder.gap(gap, position, item.start, item.properties or "")
        builder.pieces.append(Piece(item.start, item.end, "text"))
        position, gap = item.end, []
    end = position if last == texts[-1] else items[last].outer_end
    builder.gap(gap, position, end, None)
    base = builder.bases[0]
    is_extended = first < texts[0]
    edges = Edges(
        0 if is_extended else items[first].start - items[first].outer_start,
        layout.opening(items[first]) + layout.open_run(base),
        layout.closing(items[last]),
        layout.finish,
    )
    return read_passage(file, builder.pieces, SPACED_TEXT, edges)


def _look_equal(first: str, second: str) -> bool:
    """Whether text of two properties looks equal."""
    return first == second or _normalized(first) == _normalized(second)


def _normalized(properties: str) -> str:
    bare = _IGNORED_PROPERTIES.sub("", properties)
    return "" if regex.fullmatch(r"<([\w:]+)\s*/>|<([\w:]+)\s*></\2>", bare) else bare


def _extended(items: Sequence[Item], first: int, last: int) -> tuple[int, int]:
    """Returns the range of items that holds both tags of each element that begins or ends between two texts."""
    starts = {item.number: index for index, item in enumerate(items) if item.kind == "start"}
    ends = {item.number: index for index, item in enumerate(items) if item.kind == "end"}
    for item in items[first : last + 1]:
        if item.kind == "end" and starts.get(item.number, first) < first:
            first = starts[item.number]
    for item in items[first : last + 1]:
        if item.kind == "start" and ends.get(item.number, last) > last:
            last = ends[item.number]
    return first, last


def _bases(items: Sequence[Item]) -> dict[int, str]:
    """Returns the properties of most of the text within each element that encloses text, and within the paragraph."""
    lengths: dict[int, Counter[str]] = {0: Counter()}
    levels = [0]
    for item in items:
        if item.kind == "start":
            levels.append(item.number)
        elif item.kind == "end" and len(levels) > 1:
            levels.pop()
        elif item.kind == "text":
            lengths.setdefault(levels[-1], Counter())[item.properties or ""] += item.end - item.start
    everything = sum(lengths.values(), Counter[str]())
    lengths[0] = lengths[0] or everything
    return {level: counter.most_common(1)[0][0] for level, counter in lengths.items() if counter}
