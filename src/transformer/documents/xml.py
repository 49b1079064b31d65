"""XML of any kind: the text of each element, with the elements that stand beside text within it."""

from collections.abc import Iterator, Sequence
from functools import partial

from transformer.documents.attributes import attribute_of, attributes_of, positioned
from transformer.documents.blocks import block_pieces
from transformer.documents.document import Document
from transformer.documents.passages import MarkedUpText, Passage, Piece, read_passage
from transformer.documents.references import Reading
from transformer.documents.text_file import Edit, TextFile
from transformer.documents.xml_scanner import CDATA, read_xml
from transformer.text.languages import base_language
from transformer.text.markup import Token
from transformer.text.markup_templates import Markup, keep_ignored, splitting_names

TEXT: Reading = Reading(needs_semicolon=True)
"""How the text of XML is written."""
SPACED_TEXT: Reading = Reading(needs_semicolon=True, keeps_spaces=True)
"""How text is written whose white space is shown."""


def parse(content: bytes, name: str) -> Document:
    """Reads an XML file.

    Raises:
        DataError: It is not well-formed, or declares entities.
    """
    file, tokens = read_xml(content, name)
    markup = Markup("xml")
    tokens = keep_ignored(tokens, markup)
    passages = [passage for passage in _blocks(file, tokens, markup) if passage.has_letters]
    return MarkedUpText(file, passages, partial(_language_edits, tokens)).document()


def _blocks(file: TextFile, tokens: Sequence[Token], markup: Markup) -> Iterator[Passage]:
    """Yields the text of each element that has text beside its children, or has none."""
    splitting = splitting_names(tokens, markup)
    shows_spaces = [False]
    block: list[Token] = []
    start = 0
    for token, position in positioned([*tokens, Token("line end", "")]):
        is_end = token.kind == "line end" or (token.kind != "other" and token.name in splitting)
        if not is_end:
            block.append(token)
            continue
        yield from _block(file, block, start, SPACED_TEXT if shows_spaces[-1] else TEXT)
        block, start = [], position + len(token.source)
        if token.kind == "start":
            space = attribute_of(token, "xml:space") if "xml:space" in token.attributes else ""
            shows_spaces.append(space == "preserve" or (not space and shows_spaces[-1]))
        elif token.kind == "end" and len(shows_spaces) > 1:
            shows_spaces.pop()


def _block(file: TextFile, block: Sequence[Token], start: int, reading: Reading) -> Iterator[Passage]:
    """Yields the passage of a block: its text, or that of the one CDATA section that it has instead."""
    if pieces := block_pieces(block, start):
        yield read_passage(file, pieces, reading)
    elif section := section_piece(block, start):
        yield read_passage(file, [section], Reading(has_references=False))


def section_piece(block: Sequence[Token], start: int) -> Piece | None:
    """Returns the text of the only CDATA section of a block; None if it has none or several."""
    sections = [item for item in positioned(block) if item[0].source.startswith(CDATA[0])]
    if len(sections) != 1:
        return None
    token, position = sections[0]
    return Piece(start + position + len(CDATA[0]), start + position + len(token.source) - len(CDATA[1]), "text")


def _language_edits(tokens: Sequence[Token], language: str) -> list[Edit]:
    """Returns the edits of `xml:lang` where it names the language that the file names first."""
    edits: list[Edit] = []
    source = ""
    for token, position in positioned(tokens):
        if not language or token.kind not in ("start", "empty") or "xml:lang" not in token.attributes:
            continue
        for attribute in attributes_of(token, position):
            if attribute.name == "xml:lang" and attribute.value:
                source = source or base_language(attribute.value)
                if base_language(attribute.value) == source:
                    edits.append((attribute.start, attribute.end, language))
    return edits
