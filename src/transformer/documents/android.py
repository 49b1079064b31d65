"""Resources of Android (`strings.xml`): strings, items of arrays, and plurals with the forms of the target language."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import regex

from transformer.documents.blocks import block_pieces
from transformer.documents.document import KEPT, Document, Outcome, Segment, Writing
from transformer.documents.passages import MarkedUpText, Passage, Piece, read_passage
from transformer.documents.plural_forms import CATEGORIES, plural_categories
from transformer.documents.references import Reading
from transformer.documents.text_file import Edit
from transformer.documents.xml import section_piece
from transformer.documents.xml_elements import Element, XmlFile, read_xml_file
from transformer.errors import DataError
from transformer.text.markup_templates import Markup, keep_ignored

_TEXT: Final = Reading(escaped="&<>'\"\\", needs_semicolon=True, has_backslashes=True)
_QUOTED: Final = Reading(keeps_spaces=True, escaped='&<>"\\', needs_semicolon=True, has_backslashes=True)
_SECTION: Final = Reading(keeps_spaces=True, has_references=False, escaped="'\"\\", has_backslashes=True)
"""How text in CDATA sections is written, in which no character is markup but escapes are."""
_MARKUP: Final = Markup("xml", ignored=frozenset(["xliff:g"]))
_REFERENCE: Final = regex.compile(r"\s*+[@?][\w+:/.-]++\s*+")
_VALUES: Final = {"string-array": "item", "plurals": "item"}
"""Elements that hold values, and the name of each value."""


@dataclass(frozen=True)
class Value:
    """A text of the resources.

    Attributes:
        element: The `string` or `item`.
        passage: Its text.
        plural: The `plurals` that it belongs to; None if it belongs to none.
    """

    element: Element
    passage: Passage
    plural: Element | None = None


def parse(content: bytes, name: str) -> Document:
    """Reads resources of Android.

    Raises:
        DataError: They are not resources, or not well-formed.
    """
    xml = read_xml_file(content, name)
    if xml.root.name != "resources":
        raise DataError(f"{name}: its root is <{xml.root.name:.60}>; resources of Android begin with <resources>")
    values = [*_values(xml)]
    text = MarkedUpText(xml.file, [value.passage for value in values])
    segments = [Segment(value.passage.source, value.passage.start) for value in values]
    return Document(segments, partial(_write, xml, values, text), line_of=xml.file.line_of)


def _values(xml: XmlFile) -> Iterator[Value]:
    """Yields the texts to translate."""
    for holder in xml.root.children:
        if xml.attribute(holder, "translatable") == "false" or not holder.is_translated:
            continue
        if holder.name == "string":
            elements = [holder]
        else:
            elements = [child for child in holder.children if child.name == _VALUES.get(holder.name)]
        plural = holder if holder.name == "plurals" else None
        for element in elements:
            passage = _passage(xml, element)
            if passage is not None and passage.has_letters:
                yield Value(element, passage, plural)


def _passage(xml: XmlFile, element: Element) -> Passage | None:
    """Returns the text of a value; None if it has none, or refers to another resource."""
    content = keep_ignored(xml.content(element), _MARKUP)
    if _REFERENCE.fullmatch("".join(token.source for token in content)):
        return None
    start = xml.edges[element.first + 1]
    pieces = block_pieces(content, start)
    if not pieces:
        section = section_piece(content, start)
        return read_passage(xml.file, [section], _SECTION) if section else None
    text = xml.file.text
    first, last = pieces[0], pieces[-1]
    is_quoted = first.kind == last.kind == "text" and last.end - first.start > 1
    if is_quoted and text[first.start] == text[last.end - 1] == '"' and text[last.end - 2] != "\\":
        pieces[0] = Piece(first.start + 1, first.end, "text")
        pieces[-1] = Piece(pieces[-1].start, last.end - 1, "text")
        return read_passage(xml.file, pieces, _QUOTED)
    return read_passage(xml.file, pieces, _TEXT)


def _write(
    xml: XmlFile, values: Sequence[Value], text: MarkedUpText, outcomes: Sequence[Outcome], writing: Writing
) -> bytes:
    """Returns the file with translations."""
    if all(outcome == KEPT for outcome in outcomes):
        return xml.file.splice(())
    edits: list[Edit] = []
    if writing.language and xml.attribute(xml.root, "tools:locale"):
        edits.append(xml.replaced_tag(xml.root, "tools:locale", writing.language))
    for value, outcome in zip(values, outcomes, strict=True):
        is_general = xml.attribute(value.element, "quantity") == "other"
        if is_general and value.plural is not None and outcome.translation is not None:
            edits += _form_edits(xml, value, value.plural, outcome.translation, writing.language)
        if outcome.comment and writing.mark != "none":
            comment = outcome.comment.replace("--", "- -")
            edits.append(xml.file.comment_edit(xml.start(value.element), f"<!-- {comment} -->"))
    return xml.file.splice(text.written([outcome.translation for outcome in outcomes], edits))


def _form_edits(xml: XmlFile, value: Value, plural: Element, translation: str, language: str) -> Iterator[Edit]:
    """Yields the edits that add the plural forms that the file lacks, with the text of the general form."""
    present = {xml.attribute(item, "quantity") for item in plural.children}
    missing = plural_categories(language) - present
    source, start = xml.source(value.element), xml.start(value.element)
    written = value.passage.write(translation, lambda first, last: xml.file.text[first:last])
    _, tag_end, _ = xml.replaced_tag(value.element, "quantity", "other")
    before = xml.file.text[tag_end : value.passage.start]
    after = source[value.passage.end - start :]
    for category in CATEGORIES:
        if category in missing:
            _, _, tag = xml.replaced_tag(value.element, "quantity", category)
            yield start, start, f"{tag}{before}{written}{after}{xml.indent(value.element)}"
