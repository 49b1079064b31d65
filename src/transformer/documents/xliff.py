"""XLIFF 1.2 and 2.x: the translation of each unit is written into its `target`, which is inserted if it lacks one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import Final

from transformer.documents.attributes import attribute_of, with_attribute
from transformer.documents.document import KEPT, Document, Outcome, Segment, State, Writing
from transformer.documents.passages import Passage, Piece, read_passage
from transformer.documents.text_file import Edit, TextFile
from transformer.documents.xliff_codes import content_pieces
from transformer.documents.xml import SPACED_TEXT, TEXT
from transformer.documents.xml_scanner import local_name, read_xml
from transformer.errors import DataError
from transformer.text.markup import Token, unescape
from transformer.text.sentences import has_letter

_OPEN_STATES: Final = frozenset(["new", "needs-translation", "needs-l10n", "needs-adaptation"])
"""States of a target of XLIFF 1.2 that is not yet a translation."""
_AUTHOR: Final = "transformer"
"""Author of the notes on units that were left untranslated."""


@dataclass(frozen=True)
class Element:
    """An element of the file.

    Attributes:
        first: Index of its start tag.
        last: Index of its end tag, or of its only tag.
        name: Name without prefix.
        children: Its children, in order.
        is_translated: Whether neither it nor an outer element has `translate="no"`.
        shows_spaces: Whether its white space is shown as it is.
    """

    first: int
    last: int
    name: str
    children: list["Element"]
    is_translated: bool
    shows_spaces: bool

    def child(self, name: str) -> "Element | None":
        """Returns the first child of a name."""
        return next((child for child in self.children if child.name == name), None)


@dataclass(frozen=True)
class Unit:
    """A source with its translation.

    Attributes:
        holder: The `trans-unit` or `segment`.
        unit: The `trans-unit` or `unit`, which holds the notes.
        source: The `source`.
        target: The `target`; None if there is none.
        passage: Text of the source.
        segment: The segment.
    """

    holder: Element
    unit: Element
    source: Element
    target: Element | None
    passage: Passage
    segment: Segment


@dataclass(frozen=True)
class Xliff:
    """An XLIFF file.

    Attributes:
        file: The file.
        tokens: Its tokens.
        edges: Position of each token, and of the end of the file.
        root: The element `xliff`.
        units: Its units that are to be translated.
    """

    file: TextFile
    tokens: Sequence[Token]
    edges: Sequence[int]
    root: Element
    units: list[Unit] = field(default_factory=list[Unit])

    @property
    def is_first_version(self) -> bool:
        """Whether it is XLIFF 1."""
        return attribute_of(self.tokens[self.root.first], "version").startswith("1")

    @property
    def language_holders(self) -> list[tuple[Element, str]]:
        """Elements that name the language of the translations, with the attribute."""
        if not self.is_first_version:
            return [(self.root, "trgLang")]
        return [(child, "target-language") for child in self.root.children if child.name == "file"]

    def inner(self, element: Element) -> tuple[int, int]:
        """Returns the range of the content of an element in the file."""
        return self.edges[element.first + 1], self.edges[max(element.last, element.first + 1)]

    def replaced_tag(self, element: Element, name: str, value: str) -> Edit:
        """Returns the edit that sets an attribute of an element."""
        token = self.tokens[element.first]
        return self.edges[element.first], self.edges[element.first + 1], with_attribute(token, name, value)


def parse(content: bytes, name: str) -> Document:
    """Reads an XLIFF file.

    Raises:
        DataError: It is not XLIFF, or not well-formed.
    """
    file, tokens = read_xml(content, name)
    edges = [0]
    for token in tokens:
        edges.append(edges[-1] + len(token.source))
    elements = _elements(tokens)
    root = elements[0]
    if root.name != "xliff":
        raise DataError(f"{name}: its root is <{root.name:.60}>; XLIFF begins with <xliff>")
    xliff = Xliff(file, tokens, edges, root)
    for element in elements:
        xliff.units.extend(_units(xliff, element))
    languages = [attribute_of(tokens[holder.first], name.lower()) for holder, name in xliff.language_holders]
    return Document(
        [unit.segment for unit in xliff.units],
        partial(_write, xliff),
        target_language=next(filter(None, languages), ""),
        line_of=file.line_of,
    )


def _elements(tokens: Sequence[Token]) -> list[Element]:
    """Returns all elements, in the order of their start tags."""
    ends: dict[int, int] = {}
    open_tags: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind == "start":
            open_tags.append(index)
        elif token.kind == "end":
            ends[open_tags.pop()] = index
    elements: list[Element] = []
    outer: list[Element] = []
    for index, token in enumerate(tokens):
        while outer and outer[-1].last < index:
            outer.pop()
        if token.kind not in ("start", "empty"):
            continue
        parent = outer[-1] if outer else None
        translate = attribute_of(token, "translate")
        space = attribute_of(token, "xml:space")
        element = Element(
            index,
            ends.get(index, index),
            local_name(token.name),
            [],
            translate == "yes" or (translate != "no" and (parent is None or parent.is_translated)),
            space == "preserve" or (not space and parent is not None and parent.shows_spaces),
        )
        elements.append(element)
        if parent:
            parent.children.append(element)
        outer.append(element)
    return elements


def _units(xliff: Xliff, element: Element) -> Iterator[Unit]:
    """Yields the units that an element is or holds."""
    is_unit = element.name == ("trans-unit" if xliff.is_first_version else "unit")
    if not is_unit or not element.is_translated:
        return
    holders = [element] if xliff.is_first_version else [child for child in element.children if child.name == "segment"]
    for holder in holders:
        source, target = holder.child("source"), holder.child("target")
        if source is None or source.last == source.first:
            continue
        start = xliff.edges[source.first + 1]
        pieces: list[Piece] = content_pieces(xliff.tokens[source.first + 1 : source.last], start)
        if not pieces:
            continue
        passage = read_passage(xliff.file, pieces, SPACED_TEXT if source.shows_spaces else TEXT)
        if not passage.has_letters:
            continue
        text = _target_text(xliff, target)
        segment = Segment(passage.source, start, _state(xliff, holder, target, text), text)
        yield Unit(holder, element, source, target, passage, segment)


def _target_text(xliff: Xliff, target: Element | None) -> str:
    tokens = xliff.tokens[target.first : target.last] if target else ()
    return "".join(unescape(token.source) for token in tokens if token.kind == "text")


def _state(xliff: Xliff, holder: Element, target: Element | None, text: str) -> State:
    """Returns the state of a unit."""
    if target is None or not has_letter(text):
        return "untranslated"
    if not xliff.is_first_version:
        return "fuzzy" if attribute_of(xliff.tokens[holder.first], "state") == "initial" else "translated"
    state = attribute_of(xliff.tokens[target.first], "state")
    if state in _OPEN_STATES:
        return "untranslated"
    return "fuzzy" if state.startswith("needs-") else "translated"


def _write(xliff: Xliff, outcomes: Sequence[Outcome], writing: Writing) -> bytes:
    """Returns the file with translations."""
    if all(outcome == KEPT for outcome in outcomes):
        return xliff.file.splice(())
    edits: dict[tuple[int, int], str] = {}
    if writing.language:
        for holder, name in xliff.language_holders:
            start, end, tag = xliff.replaced_tag(holder, name, writing.language)
            edits[start, end] = tag
    noted: dict[int, tuple[Unit, list[str]]] = {}
    for unit, outcome in zip(xliff.units, outcomes, strict=True):
        if outcome == KEPT:
            continue
        if outcome.translation is not None:
            for start, end, text in _target_edits(xliff, unit, outcome, writing):
                edits[start, end] = text
        _, reasons = noted.setdefault(unit.unit.first, (unit, []))
        if outcome.is_refused and writing.mark != "none":
            reasons.append(" ".join(outcome.reason.split()))
    notes = [edit for unit, reasons in noted.values() for edit in _note_edits(xliff, unit, "; ".join(reasons))]
    return xliff.file.splice([*((start, end, text) for (start, end), text in edits.items()), *notes])


def _target_edits(xliff: Xliff, unit: Unit, outcome: Outcome, writing: Writing) -> Iterator[Edit]:
    """Yields the edits that write the translation of a unit, and its state."""
    text = xliff.file.text
    content = unit.passage.write(outcome.translation or "", lambda start, end: text[start:end])
    is_marked = outcome.is_marked(writing.mark)
    if not xliff.is_first_version:
        tag = xliff.tokens[unit.holder.first]
        if is_marked or attribute_of(tag, "state"):
            yield xliff.replaced_tag(unit.holder, "state", "initial" if is_marked else "translated")
    state = "needs-review-translation" if is_marked else "translated"
    if unit.target is None:
        prefix = xliff.tokens[unit.source.first].name.removesuffix("source")
        attributes = f' state="{state}"' if xliff.is_first_version and is_marked else ""
        place = unit.holder.child("seg-source") or unit.source
        position = xliff.edges[place.last + 1]
        start = xliff.edges[unit.source.first]
        indent = _indent(text, start)
        yield position, position, f"{indent}<{prefix}target{attributes}>{content}</{prefix}target>"
        return
    tag = xliff.tokens[unit.target.first]
    start, end = xliff.edges[unit.target.first], xliff.edges[unit.target.last + 1]
    opening = tag.source
    if xliff.is_first_version and (is_marked or attribute_of(tag, "state")):
        opening = with_attribute(tag, "state", state)
    if tag.kind == "empty":
        opening = f"{opening[:-2].rstrip()}>"
        closing = f"</{tag.name}>"
    else:
        closing = xliff.tokens[unit.target.last].source
    yield start, end, f"{opening}{content}{closing}"


def _note_edits(xliff: Xliff, unit: Unit, reason: str) -> Iterator[Edit]:
    """Yields the edits that write why a unit was left untranslated, and remove what an earlier run wrote."""
    attribute = "from" if xliff.is_first_version else "category"
    holder = unit.unit if xliff.is_first_version else unit.unit.child("notes")
    children = holder.children if holder else []
    outdated = [child for child in children if attribute_of(xliff.tokens[child.first], attribute) == _AUTHOR]
    if holder and not reason and len(outdated) == len(children):
        outdated = [holder]
    for note in outdated:
        start = xliff.edges[note.first]
        yield start - len(_indent(xliff.file.text, start)), xliff.edges[note.last + 1], ""
    if not reason:
        return
    prefix = xliff.tokens[unit.source.first].name.removesuffix("source")
    text = f"not translated: {escape(reason, quote=False)}"
    note = f'<{prefix}note {attribute}="{_AUTHOR}">{text}</{prefix}note>'
    if xliff.is_first_version:
        place = unit.target or unit.holder.child("seg-source") or unit.source
        indent = _indent(xliff.file.text, xliff.edges[unit.source.first])
        yield xliff.edges[place.last + 1], xliff.edges[place.last + 1], indent + note
    elif holder and children:
        position = xliff.edges[children[-1].last + 1]
        yield position, position, _indent(xliff.file.text, xliff.edges[children[-1].first]) + note
    else:
        first = unit.unit.child("originalData") or unit.holder
        position = xliff.edges[first.first]
        yield position, position, f"<{prefix}notes>{note}</{prefix}notes>" + _indent(xliff.file.text, position)


def _indent(text: str, position: int) -> str:
    """Returns the line end and the white space before a position; empty if something else stands before it."""
    start = position
    while start and text[start - 1] in " \t":
        start -= 1
    if not start or text[start - 1] != "\n":
        return ""
    start -= 2 if text[:start].endswith("\r\n") else 1
    return text[start:position]
