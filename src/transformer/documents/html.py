"""HTML pages: the text of each block with its inline elements, attributes that are read or shown, and the language."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import regex

from transformer.documents.attributes import attributes_of, positioned
from transformer.documents.blocks import block_pieces
from transformer.documents.document import Document
from transformer.documents.passages import Edges, MarkedUpText, Passage, Piece, read_passage
from transformer.documents.references import Reading
from transformer.documents.text_file import Edit, TextFile, read_text_file
from transformer.errors import DataError
from transformer.text.languages import base_language
from transformer.text.markup import BLOCK_ELEMENTS, Token, markup_tokens
from transformer.text.markup_templates import Markup, keep_ignored, separate_lines
from transformer.text.sentences import has_letter

ATTRIBUTES: Final = frozenset(["alt", "title", "placeholder", "aria-label", "aria-description", "aria-placeholder"])
"""Attributes whose values are translated."""
DESCRIPTIONS: Final = frozenset(
    ["description", "og:title", "og:description", "twitter:title", "twitter:description", "apple-mobile-web-app-title"]
)
"""Names of `meta` elements whose contents are translated."""
_CHARSET: Final = regex.compile(rb"<meta\s[^>]{0,500}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", regex.IGNORECASE)
_XML_ENCODING: Final = regex.compile(rb"\A\s*<\?xml\s[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})")
_HEAD_BYTES: Final = 1 << 12
_LABELS: Final = {"iso-8859-1": "cp1252", "latin1": "cp1252", "latin-1": "cp1252", "us-ascii": "cp1252"}
"""Encodings that browsers read as another, as the WHATWG Encoding Standard says."""


def parse(content: bytes, name: str) -> Document:
    """Reads an HTML page, or a part of one.

    Raises:
        DataError: It is not in the encoding that it declares.
    """
    file = _decoded(content, name)
    markup = Markup("html")
    tokens = separate_lines(keep_ignored(markup_tokens(file.text, "html"), markup))
    candidates = [*_blocks(file, tokens), *_attributes(file, tokens)]
    passages = sorted((passage for passage in candidates if passage.has_letters), key=lambda passage: passage.start)
    return MarkedUpText(file, passages, partial(_language_edits, file, tokens)).document()


def _decoded(content: bytes, name: str) -> TextFile:
    """Decodes a page; without a declaration and not in UTF-8, it is read as Windows-1252, as browsers do."""
    head = content[:_HEAD_BYTES]
    declared = _CHARSET.search(head) or _XML_ENCODING.search(head)
    if declared is None:
        try:
            return read_text_file(content, name)
        except DataError:
            if b"\0" in content:
                raise
            return read_text_file(content, name, "cp1252")
    encoding = declared[1].decode("ascii").lower()
    encoding = "utf-8" if encoding.startswith("utf-16") else encoding
    try:
        return read_text_file(content, name, _LABELS.get(encoding, encoding))
    except DataError:
        if encoding not in _LABELS:
            raise
        return read_text_file(content, name, encoding)


def _blocks(file: TextFile, tokens: Sequence[Token]) -> Iterator[Passage]:
    """Yields the text of each block."""
    shows_lines = 0
    block: list[Token] = []
    start = 0
    for token, position in positioned([*tokens, Token("line end", "")]):
        if token.kind != "line end" and token.name not in BLOCK_ELEMENTS:
            block.append(token)
            continue
        pieces = block_pieces(block, start)
        if pieces:
            yield read_passage(file, pieces, Reading(keeps_spaces=shows_lines > 0))
        block, start = [], position + len(token.source)
        if token.name in ("pre", "textarea"):
            shows_lines = max(0, shows_lines + (token.kind == "start") - (token.kind == "end"))


def _attributes(file: TextFile, tokens: Sequence[Token]) -> Iterator[Passage]:
    """Yields the values of attributes that are translated."""
    for token, position in positioned(tokens):
        if token.kind not in ("start", "empty") or "=" not in token.attributes:
            continue
        attributes = [*attributes_of(token, position)]
        values = {attribute.name: attribute.value.lower() for attribute in attributes}
        for attribute in attributes:
            if not _is_shown(token.name, attribute.name, values) or not has_letter(attribute.value):
                continue
            space = len(attribute.value) - len(attribute.value.lstrip())
            end = attribute.end - (len(attribute.value) - len(attribute.value.rstrip()))
            piece = Piece(attribute.start + space, end, "text")
            reading = Reading(escaped=f"&<{attribute.quote}")
            yield read_passage(file, [piece], reading, Edges(finish=str if attribute.quote else _quoted))


def _is_shown(element: str, name: str, values: dict[str, str]) -> bool:
    """Whether the value of an attribute is text for people."""
    if name in ATTRIBUTES:
        return True
    if element == "meta" and name == "content":
        return values.get("name", values.get("property", "")) in DESCRIPTIONS
    if element == "input" and name == "value":
        return values.get("type", "") in ("button", "submit", "reset")
    return name == "label" and element in ("optgroup", "option", "track")


def _quoted(value: str) -> str:
    """Returns the value of an attribute that had no quotation marks, with marks if it needs them."""
    if value and regex.search(r"[\s\"'=<>`]", value) is None:
        return value
    return f'"{value.replace(chr(34), "&quot;")}"'


def _language_edits(file: TextFile, tokens: Sequence[Token], language: str) -> list[Edit]:
    """Returns the edits that set the language of the page, which is the first that it names, wherever it names it."""
    if not language:
        return []
    edits: list[Edit] = []
    source = ""
    for token, position in positioned(tokens):
        if token.kind not in ("start", "empty") or "=" not in token.attributes:
            continue
        attributes = [*attributes_of(token, position)]
        is_header = token.name == "meta" and any(
            attribute.name == "http-equiv" and attribute.value.lower() == "content-language" for attribute in attributes
        )
        for attribute in attributes:
            if attribute.name not in ("lang", "xml:lang") and not (is_header and attribute.name == "content"):
                continue
            source = source or base_language(attribute.value)
            if attribute.value and base_language(attribute.value) == source:
                edits.append((attribute.start, attribute.end, language))
    return edits
