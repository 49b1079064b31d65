"""Translation memories (TMX): the translation of a unit is written into its variant, which is inserted if missing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from transformer.documents.document import KEPT, Document, Outcome, Segment, State, Writing
from transformer.documents.passages import Passage
from transformer.documents.text_file import Edit
from transformer.documents.xliff_codes import aligned_content, has_text, read_content
from transformer.documents.xml_elements import Element, XmlFile, indent_at, read_xml_file
from transformer.errors import DataError
from transformer.text.languages import base_language

_REVIEW: Final = "x-review"
"""Type of the property of the translations to be reviewed."""
_REFUSED: Final = "not translated by the program: "
"""Beginning of the notes on units that were left untranslated."""
_ANY: Final = "*all*"
"""Source language of a memory whose units have any."""


@dataclass(frozen=True)
class Unit:
    """A unit with the variants (`tuv`) of two languages.

    Attributes:
        unit: The `tu`.
        source: Variant of the source.
        source_content: Its `seg`.
        target: Variant of the translation; None if there is none.
        target_content: Its `seg`.
        passage: Text of the source.
        segment: The segment.
    """

    unit: Element
    source: Element
    source_content: Element
    target: Element | None
    target_content: Element | None
    passage: Passage
    segment: Segment


def parse(content: bytes, name: str) -> Document:
    """Reads a translation memory. Without `Document.in_languages`, its source language is that of its header.

    Raises:
        DataError: It is not TMX, or not well-formed.
    """
    xml = read_xml_file(content, name)
    if xml.root.name != "tmx":
        raise DataError(f"{name}: its root is <{xml.root.name:.60}>; TMX begins with <tmx>")
    header = xml.root.child("header")
    language = xml.attribute(header, "srclang") if header else ""
    tags = _variant_languages(xml)
    source = language if language and language != _ANY else next(iter(tags), "")
    others = {base_language(tag): tag for tag in tags if base_language(tag) != base_language(source)}
    return _document(xml, source, next(iter(others.values())) if len(others) == 1 else "")


def _variant_languages(xml: XmlFile) -> list[str]:
    """Returns the languages of the variants as written, each once."""
    return [*dict.fromkeys(_language(xml, element) for element in xml.elements if element.name == "tuv")]


def _language(xml: XmlFile, variant: Element) -> str:
    return xml.attribute(variant, "xml:lang") or xml.attribute(variant, "lang")


def _document(xml: XmlFile, source: str, target: str) -> Document:
    """Returns the document of a pair of languages.

    Raises:
        DataError: No unit has the source language.
    """
    tags = _variant_languages(xml)
    if tags and base_language(source) not in map(base_language, tags):
        raise DataError(
            f"{xml.file.name}: no unit has a text in {source!r:.40}; it holds {', '.join(tags[:10]):.200}; choose a "
            "model that translates from one of them"
        )
    units = [unit for element in xml.elements if element.name == "tu" for unit in _units(xml, element, source, target)]
    return Document(
        [unit.segment for unit in units],
        partial(_write, xml, units, target),
        line_of=xml.file.line_of,
        between=lambda first, second: _document(xml, first or source, second or target),
    )


def _units(xml: XmlFile, element: Element, source: str, target: str) -> Iterator[Unit]:
    """Yields the unit of a `tu` that has a text in the source language."""
    variants = [child for child in element.children if child.name == "tuv" and child.child("seg")]
    first = _variant(xml, variants, source)
    content = first.child("seg") if first else None
    passage = read_content(xml, content) if content else None
    if first is None or content is None or passage is None:
        return
    second = _variant(xml, [variant for variant in variants if variant is not first], target)
    second_content = second.child("seg") if second else None
    is_open = second is None and (bool(target) or len(variants) == 1)
    segment = Segment(
        passage.source,
        passage.start,
        "untranslated" if is_open else _state(xml, second),
        aligned_content(xml, passage, second_content),
    )
    yield Unit(element, first, content, second, second_content, passage, segment)


def _variant(xml: XmlFile, variants: Sequence[Element], language: str) -> Element | None:
    """Returns the variant in a language, or else the first one in that of another region."""
    alike = [variant for variant in variants if base_language(_language(xml, variant)) == base_language(language)]
    same = [variant for variant in alike if _language(xml, variant).lower() == language.lower()]
    return next(iter(same or alike), None) if language else None


def _state(xml: XmlFile, target: Element | None) -> State:
    content = target.child("seg") if target else None
    if target is None or content is None:
        return "translated"
    if not has_text(xml, content):
        return "untranslated"
    return "fuzzy" if _review(xml, target) else "translated"


def _review(xml: XmlFile, target: Element) -> Element | None:
    """Returns the property of a variant that is to be reviewed; None if it need not be."""
    properties = (child for child in target.children if child.name == "prop")
    return next((child for child in properties if xml.attribute(child, "type") == _REVIEW), None)


def _write(xml: XmlFile, units: Sequence[Unit], target: str, outcomes: Sequence[Outcome], writing: Writing) -> bytes:
    """Returns the file with translations.

    Raises:
        DataError: Their language is not known.
    """
    edits: list[Edit] = []
    for unit, outcome in zip(units, outcomes, strict=True):
        if outcome == KEPT:
            continue
        edits += _note_edits(xml, unit.unit, outcome, writing)
        if outcome.translation is not None:
            language = writing.language or target
            if not language:
                raise DataError(f"{xml.file.name}: the language of the translations is not known; name it")
            edits += _target_edits(xml, unit, outcome, language, is_marked=outcome.is_marked(writing.mark))
    return xml.file.splice(edits)


def _target_edits(xml: XmlFile, unit: Unit, outcome: Outcome, language: str, *, is_marked: bool) -> Iterator[Edit]:
    """Yields the edits that write the translation of a unit, and whether it is to be reviewed."""
    text = xml.file.text
    written = unit.passage.write(outcome.translation or "", lambda start, end: text[start:end])
    review = f'<prop type="{_REVIEW}">machine translation</prop>' if is_marked else ""
    content = unit.target_content or unit.source_content
    inner_indent = xml.indent(content)
    if unit.target is None:
        name = "xml:lang" if xml.attribute(unit.source, "xml:lang") else "lang"
        closing = indent_at(text, xml.edges[unit.source.last])
        body = f"{inner_indent}{review}" * is_marked + f"{inner_indent}<seg>{written}</seg>{closing}"
        last = [child for child in unit.unit.children if child.name == "tuv"][-1]
        yield (
            xml.end(last),
            xml.end(last),
            f'{xml.indent(unit.source)}<tuv {name}="{xml.written(language)}">{body}</tuv>',
        )
        return
    earlier = _review(xml, unit.target)
    if is_marked and earlier is None:
        yield xml.start(content), xml.start(content), f"{review}{inner_indent}"
    elif earlier is not None and not is_marked:
        yield xml.removed(earlier)
    tag = xml.tokens[content.first]
    if tag.kind == "empty":
        yield xml.start(content), xml.end(content), f"{tag.source[:-2].rstrip()}>{written}</{tag.name}>"
    else:
        yield xml.edges[content.first + 1], xml.edges[content.last], written


def _note_edits(xml: XmlFile, unit: Element, outcome: Outcome, writing: Writing) -> Iterator[Edit]:
    """Yields the edits that write why a unit was left untranslated, instead of an earlier reason."""
    outdated = [
        child
        for child in unit.children
        if child.name == "note" and "".join(token.source for token in xml.content(child)).startswith(_REFUSED)
    ]
    yield from map(xml.removed, outdated)
    if outcome.is_refused and writing.mark != "none":
        first = next(child for child in unit.children if child not in outdated)
        note = f"<note>{xml.written(_REFUSED + ' '.join(outcome.reason.split()))}</note>"
        yield xml.start(first), xml.start(first), note + xml.indent(first)
