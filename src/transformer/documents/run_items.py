"""Items of the paragraphs of OOXML (ECMA-376): texts of runs, and what stands between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, Literal

import regex

from transformer.text.markup import Token, unescape

_TRANSLATED_FIELDS: Final = ("HYPERLINK", "TOC", "INDEX")
"""Fields whose results are text of the document; those of others are computed."""


@dataclass(frozen=True)
class Layout:
    """Names of the elements of a format.

    Attributes:
        prefix: Prefix of the names.
        text_tag: Start tag of a text.
        enclosing: Elements that enclose runs.
        breaks: Elements within runs or beside them that separate lines.
        hidden: Elements without text that mark a place.
    """

    prefix: str
    text_tag: str
    enclosing: frozenset[str]
    breaks: frozenset[str]
    hidden: frozenset[str]

    @property
    def end_run(self) -> str:
        """Markup that ends a run."""
        return f"</{self.prefix}r>"

    @property
    def close_run(self) -> str:
        """Markup that ends a text and its run."""
        return f"</{self.prefix}t></{self.prefix}r>"

    def begin_run(self, properties: str) -> str:
        """Returns the markup that begins a run."""
        return f"<{self.prefix}r>{properties}"

    def open_run(self, properties: str) -> str:
        """Returns the markup that begins a run and a text."""
        return self.begin_run(properties) + self.text_tag

    def beside_text(self, item: "Item", properties: str) -> list[str | tuple[int, int]]:
        """Returns an item as it is written between two texts.

        Args:
            item: The item.
            properties: Properties of the run that follows.
        """
        is_beside_runs = item.properties is None
        before = "" if is_beside_runs else self.begin_run(item.properties or "")
        after = "" if is_beside_runs else self.end_run
        return [self.close_run + before, (item.start, item.end), after + self.open_run(properties)]

    def opening(self, item: "Item") -> str:
        """Returns the markup that ends what is open where the first item of a passage begins."""
        if item.kind == "text":
            return self.close_run
        return "" if item.properties is None else self.end_run

    def closing(self, item: "Item") -> str:
        """Returns the markup behind a text that restores what is open where the last item of a passage ends."""
        if item.kind == "text":
            return ""
        return self.close_run if item.properties is None else f"</{self.prefix}t>"

    def finish(self, written: str) -> str:
        """Marks texts whose outer spaces are to be kept."""
        if "xml:space" not in self.text_tag:
            return written
        return regex.sub(rf"<{self.prefix}t>(?=[ \t\r\n]|[^<]*+(?<=[ \t\r\n])<)", self.text_tag, written)


@dataclass(frozen=True)
class Item:
    """A part of a paragraph.

    Attributes:
        kind: "text"; "start" or "end" of an element that encloses runs; "object" for what stands between texts;
            "break" between lines; "hidden" for what the translator need not see.
        start: Where its text or markup begins in the file.
        end: Its exclusive end.
        properties: Properties of the run in which it stands, as written; None if it stands beside runs.
        outer_start: Where the tag begins that holds the text.
        outer_end: Exclusive end of its markup.
        number: Number that start and end of an element have in common.
    """

    kind: Literal["text", "start", "end", "object", "break", "hidden"]
    start: int
    end: int
    properties: str | None = None
    outer_start: int = 0
    outer_end: int = 0
    number: int = 0


@dataclass(frozen=True)
class FieldMark(Item):
    """Beginning, separator or end of a field, or its instruction.

    Attributes:
        mark: "begin", "separate", "end", or the instruction behind "=".
    """

    mark: str = ""


@dataclass
class ItemReader:
    """Reads the items of the paragraphs of a file.

    Attributes:
        tokens: Tokens of the file.
        layout: Names of elements.
        edges: Position of each token, and of the end of the file.
        partners: Index of the end tag of each start tag.
    """

    tokens: Sequence[Token]
    layout: Layout
    edges: list[int] = field(init=False)
    partners: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.edges = [*accumulate((len(token.source) for token in self.tokens), initial=0)]
        self.partners = {}
        open_tags: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.kind == "start":
                open_tags.append(index)
            elif token.kind == "end":
                self.partners[open_tags.pop()] = index

    def paragraphs(self) -> Iterator[list[Item]]:
        """Yields the items of each paragraph between line breaks."""
        for index, token in enumerate(self.tokens):
            if token.kind == "start" and token.name == f"{self.layout.prefix}p":
                yield from _divided([*_read_fields([*self._items(index + 1, self.partners[index])])])

    def _local(self, index: int) -> str:
        """Returns the name of an element without the prefix of the format; empty for elements of others."""
        name = self.tokens[index].name
        return name.removeprefix(self.layout.prefix) if name.startswith(self.layout.prefix) else ""

    def _items(self, start: int, end: int) -> Iterator[Item]:
        """Yields the items of a range of tokens beside runs."""
        index = start
        open_elements: list[tuple[int, int]] = []
        while index < end:
            while open_elements and open_elements[-1][0] == index:
                _, number = open_elements.pop()
                last = self._last_tag(index)
                yield self._item("end", index, last, number=number)
                index = last + 1
            if index >= end:
                break
            token, name = self.tokens[index], self._local(index)
            last = self.partners.get(index, index)
            if name == "r" and token.kind == "start":
                yield from self._run(index, last)
            elif token.kind == "start" and name in self.layout.enclosing:
                first_end = index
                inner_end = last
                if name == "sdt":
                    content = next((inner for inner in range(index, last) if self._local(inner) == "sdtContent"), index)
                    first_end, inner_end = content, self.partners.get(content, last)
                yield self._item("start", index, first_end, number=index)
                open_elements.append((inner_end, index))
                last = first_end
            elif name in self.layout.breaks:
                yield self._item("break", index, last)
            elif name in self.layout.hidden or not token.source.strip() or name in ("pPr", "sdtPr", "endParaRPr"):
                yield self._item("hidden", index, last)
            else:
                yield self._item("object", index, last)
            index = last + 1

    def _last_tag(self, index: int) -> int:
        """Returns the index of the end tag that belongs to the same code: `</w:sdt>` follows `</w:sdtContent>`."""
        is_content = self._local(index) == "sdtContent"
        return index + 1 if is_content and self._local(index + 1) == "sdt" else index

    def _item(
        self,
        kind: Literal["text", "start", "end", "object", "break", "hidden"],
        first: int,
        last: int,
        properties: str | None = None,
        number: int = 0,
    ) -> Item:
        start, end = self.edges[first], self.edges[last + 1]
        return Item(kind, start, end, properties, start, end, number)

    def _run(self, start: int, end: int) -> Iterator[Item]:
        """Yields the items of a run."""
        index = start + 1
        properties = ""
        while index < end:
            last = self.partners.get(index, index)
            name, token = self._local(index), self.tokens[index]
            if name == "rPr":
                properties = "".join(inner.source for inner in self.tokens[index : last + 1])
            elif name == "t" and token.kind == "start":
                yield Item("text", self.edges[index + 1], self.edges[last], properties, self.edges[index])
            elif name == "fldChar":
                match = regex.search(r"fldCharType\s*=\s*[\"'](\w+)", token.attributes)
                yield FieldMark(
                    "object", self.edges[index], self.edges[last + 1], properties, mark=match[1] if match else ""
                )
            elif name == "instrText":
                text = "".join(inner.source for inner in self.tokens[index + 1 : last])
                yield FieldMark(
                    "object", self.edges[index], self.edges[last + 1], properties, mark=f"={unescape(text)}"
                )
            elif name in self.layout.breaks:
                yield self._item("break", index, last, properties)
            elif name in self.layout.hidden or not token.source.strip() or name == "t":
                yield self._item("hidden", index, last, properties)
            else:
                yield self._item("object", index, last, properties)
            index = last + 1


def _read_fields(items: Sequence[Item]) -> Iterator[Item]:
    """Yields items with one object for each field whose result is computed; those of others enclose their results."""
    ends, separators, instructions = _fields(items)
    starts = {end: start for start, end in ends.items()}
    index = 0
    while index < len(items):
        item = items[index]
        if not isinstance(item, FieldMark) or item.mark.startswith("="):
            yield item
        elif item.mark != "begin":
            start = starts.get(index)
            kind = "object" if start is None else "end"
            yield Item(kind, item.start, item.end, item.properties, item.start, item.end, -1 - (start or 0))
        else:
            separator = separators.get(index)
            is_text = separator is not None and instructions[index].split()[:1] in [
                [name] for name in _TRANSLATED_FIELDS
            ]
            if index in ends and not is_text:
                last = ends[index]
            else:
                last = separator if separator is not None else len(items) - 1
            kind = "start" if index in ends and is_text else "object"
            end = items[last].end
            yield Item(kind, item.start, end, item.properties, item.start, end, -1 - index)
            index = last
        index += 1


def _fields(items: Sequence[Item]) -> tuple[dict[int, int], dict[int, int], dict[int, str]]:
    """Returns the end, the separator and the instruction of each field by the index of its beginning."""
    ends: dict[int, int] = {}
    separators: dict[int, int] = {}
    instructions: dict[int, str] = {}
    open_fields: list[int] = []
    for index, item in enumerate(items):
        if not isinstance(item, FieldMark):
            continue
        if item.mark == "begin":
            open_fields.append(index)
            instructions[index] = ""
        elif open_fields and item.mark.startswith("="):
            instructions[open_fields[-1]] += item.mark[1:]
        elif open_fields and item.mark == "separate":
            separators[open_fields[-1]] = index
        elif open_fields and item.mark == "end":
            ends[open_fields.pop()] = index
    return ends, separators, instructions


def _divided(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yields the items between line breaks; a break within an element that encloses text is an object."""
    part: list[Item] = []
    depth = 0
    for item in items:
        depth += (item.kind == "start") - (item.kind == "end")
        if item.kind == "break" and depth <= 0:
            yield part
            part = []
        else:
            part.append(replace(item, kind="object") if item.kind == "break" else item)
    yield part
