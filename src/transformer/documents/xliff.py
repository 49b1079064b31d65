"""XLIFF 1.2 and 2.x: the translation of each unit is written into its `target`, which is inserted if it lacks one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from transformer.documents.attributes import with_attribute
from transformer.documents.document import KEPT, Document, Outcome, Segment, State, Writing
from transformer.documents.passages import Passage
from transformer.documents.text_file import Edit
from transformer.documents.xliff_codes import aligned_content, has_text, read_content
from transformer.documents.xml_elements import Element, XmlFile, read_xml_file
from transformer.errors import DataError

_OPEN_STATES: Final = frozenset(["new", "needs-translation", "needs-l10n", "needs-adaptation"])
"""States of a target of XLIFF 1.2 that is not yet a translation."""
_AUTHOR: Final = "transformer"
"""Author of the notes on units that were left untranslated."""


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
        xml: The file.
        units: Its units that are to be translated.
    """

    xml: XmlFile
    units: list[Unit] = field(default_factory=list[Unit])

    @property
    def is_first_version(self) -> bool:
        """Whether it is XLIFF 1."""
        return self.xml.attribute(self.xml.root, "version").startswith("1")

    @property
    def language_holders(self) -> list[tuple[Element, str]]:
        """Elements that name the language of the translations, with the attribute."""
        if not self.is_first_version:
            return [(self.xml.root, "trgLang")]
        return [(child, "target-language") for child in self.xml.root.children if child.name == "file"]


def parse(content: bytes, name: str) -> Document:
    """Reads an XLIFF file.

    Raises:
        DataError: It is not XLIFF, or not well-formed.
    """
    xml = read_xml_file(content, name)
    if xml.root.name != "xliff":
        raise DataError(f"{name}: its root is <{xml.root.name:.60}>; XLIFF begins with <xliff>")
    xliff = Xliff(xml)
    for element in xml.elements:
        xliff.units.extend(_units(xliff, element))
    languages = [xml.attribute(holder, name.lower()) for holder, name in xliff.language_holders]
    return Document(
        [unit.segment for unit in xliff.units],
        partial(_write, xliff),
        target_language=next(filter(None, languages), ""),
        line_of=xml.file.line_of,
    )


def _units(xliff: Xliff, element: Element) -> Iterator[Unit]:
    """Yields the units that an element is or holds."""
    is_unit = element.name == ("trans-unit" if xliff.is_first_version else "unit")
    if not is_unit or not element.is_translated:
        return
    holders = [element] if xliff.is_first_version else [child for child in element.children if child.name == "segment"]
    for holder in holders:
        source, target = holder.child("source"), holder.child("target")
        passage = read_content(xliff.xml, source) if source else None
        if source is None or passage is None:
            continue
        state = _state(xliff, holder, target)
        segment = Segment(passage.source, passage.start, state, aligned_content(xliff.xml, passage, target))
        yield Unit(holder, element, source, target, passage, segment)


def _state(xliff: Xliff, holder: Element, target: Element | None) -> State:
    """Returns the state of a unit."""
    if target is None or not has_text(xliff.xml, target):
        return "untranslated"
    if not xliff.is_first_version:
        return "fuzzy" if xliff.xml.attribute(holder, "state") == "initial" else "translated"
    state = xliff.xml.attribute(target, "state")
    if state in _OPEN_STATES:
        return "untranslated"
    return "fuzzy" if state.startswith("needs-") else "translated"


def _write(xliff: Xliff, outcomes: Sequence[Outcome], writing: Writing) -> bytes:
    """Returns the file with translations."""
    if all(outcome == KEPT for outcome in outcomes):
        return xliff.xml.file.splice(())
    edits: dict[tuple[int, int], str] = {}
    if writing.language:
        for holder, name in xliff.language_holders:
            start, end, tag = xliff.xml.replaced_tag(holder, name, writing.language)
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
    return xliff.xml.file.splice([*((start, end, text) for (start, end), text in edits.items()), *notes])


def _target_edits(xliff: Xliff, unit: Unit, outcome: Outcome, writing: Writing) -> Iterator[Edit]:
    """Yields the edits that write the translation of a unit, and its state."""
    xml = xliff.xml
    text = xml.file.text
    content = unit.passage.write(outcome.translation or "", lambda start, end: text[start:end])
    is_marked = outcome.is_marked(writing.mark)
    if not xliff.is_first_version and (is_marked or xml.attribute(unit.holder, "state")):
        yield xml.replaced_tag(unit.holder, "state", "initial" if is_marked else "translated")
    state = "needs-review-translation" if is_marked else "translated"
    if unit.target is None:
        prefix = xml.tokens[unit.source.first].name.removesuffix("source")
        attributes = f' state="{state}"' if xliff.is_first_version and is_marked else ""
        place = unit.holder.child("seg-source") or unit.source
        position = xml.end(place)
        yield position, position, f"{xml.indent(unit.source)}<{prefix}target{attributes}>{content}</{prefix}target>"
        return
    tag = xml.tokens[unit.target.first]
    start, end = xml.start(unit.target), xml.end(unit.target)
    opening = tag.source
    if xliff.is_first_version and (is_marked or xml.attribute(unit.target, "state")):
        opening = with_attribute(tag, "state", state)
    if tag.kind == "empty":
        opening = f"{opening[:-2].rstrip()}>"
        closing = f"</{tag.name}>"
    else:
        closing = xml.tokens[unit.target.last].source
    yield start, end, f"{opening}{content}{closing}"


def _note_edits(xliff: Xliff, unit: Unit, reason: str) -> Iterator[Edit]:
    """Yields the edits that write why a unit was left untranslated, and remove what an earlier run wrote."""
    xml = xliff.xml
    attribute = "from" if xliff.is_first_version else "category"
    holder = unit.unit if xliff.is_first_version else unit.unit.child("notes")
    children = holder.children if holder else []
    outdated = [child for child in children if xml.attribute(child, attribute) == _AUTHOR]
    if holder and not reason and len(outdated) == len(children):
        outdated = [holder]
    yield from map(xml.removed, outdated)
    if not reason:
        return
    prefix = xml.tokens[unit.source.first].name.removesuffix("source")
    note = f'<{prefix}note {attribute}="{_AUTHOR}">{xml.written(f"not translated: {reason}")}</{prefix}note>'
    if xliff.is_first_version:
        place = unit.target or unit.holder.child("seg-source") or unit.source
        yield xml.end(place), xml.end(place), xml.indent(unit.source) + note
    elif holder and children:
        yield xml.end(children[-1]), xml.end(children[-1]), xml.indent(children[-1]) + note
    else:
        first = unit.unit.child("originalData") or unit.holder
        yield xml.start(first), xml.start(first), f"<{prefix}notes>{note}</{prefix}notes>" + xml.indent(first)
