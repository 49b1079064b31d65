"""Inline elements of XLIFF 1.2 and 2.x and TMX: those in pairs, and those whose contents stay."""

from collections.abc import Sequence
from typing import Final

from transformer.documents.attributes import attribute_of
from transformer.documents.passages import Passage, Piece, read_passage
from transformer.documents.xml import SPACED_TEXT, TEXT
from transformer.documents.xml_elements import Element, XmlFile
from transformer.documents.xml_scanner import CDATA, local_name
from transformer.text.markup import Token, matching_tags, unescape
from transformer.text.sentences import has_letter

_WHOLE: Final = frozenset(["ph", "it", "bpt", "ept", "ut", "data"])
"""Elements whose contents are codes of the original format."""
_STARTS: Final = frozenset(["bpt", "bx", "sc", "sm"])
_ENDS: Final = frozenset(["ept", "ex", "ec", "em"])
_KEYS: Final = {"bpt": ("rid", "id", "i"), "bx": ("rid", "id"), "sc": ("id",), "sm": ("id",)}
_END_KEYS: Final = {"ept": ("rid", "id", "i"), "ex": ("rid", "id"), "ec": ("startref", "id"), "em": ("startref",)}


def read_content(xml: XmlFile, element: Element) -> Passage | None:
    """Returns the text of a `source` or the like with its codes; None if it has no letter outside of codes."""
    pieces = _content_pieces(xml.content(element), xml.edges[element.first + 1])
    if not pieces:
        return None
    passage = read_passage(xml.file, pieces, SPACED_TEXT if element.shows_spaces else TEXT)
    return passage if passage.has_letters else None


def has_text(xml: XmlFile, element: Element) -> bool:
    """Whether an element has a letter, of a code if nowhere else."""
    return any(has_letter(unescape(token.source)) for token in xml.content(element) if token.kind == "text")


def aligned_content(xml: XmlFile, passage: Passage, target: Element | None) -> str:
    """Returns the text of a translation with the stand-ins of its source; empty if there is none, or with other codes.

    Args:
        xml: The file.
        passage: Text of the source.
        target: Element of the translation; None if there is none.
    """
    translated = read_content(xml, target) if target else None
    if translated is None:
        return ""
    return passage.source.aligned(translated.source.split(translated.source.text)) or ""


def _content_pieces(tokens: Sequence[Token], start: int) -> list[Piece]:
    """Returns the pieces of the content of a `source`; none if it has no text outside of codes.

    Args:
        tokens: Tokens of the content.
        start: Position of the content in the file, in characters.
    """
    partners = matching_tags(tokens)
    pairs = {index: f"element {begin}" for begin, end in partners.items() for index in (begin, end)}
    pieces: list[Piece] = []
    index, position = 0, start
    while index < len(tokens):
        token = tokens[index]
        last = index
        if token.kind == "start" and _is_whole(token):
            last = partners.get(index, index)
        length = sum(len(inner.source) for inner in tokens[index : last + 1])
        pieces.append(_piece(token, position, position + length, pairs.get(index, ""), is_whole=last > index))
        position += length
        index = last + 1
    return pieces if any(piece.kind == "text" for piece in pieces) else []


def _is_whole(token: Token) -> bool:
    """Whether an element is one code with its content."""
    name = local_name(token.name)
    is_kept = name == "mrk" and (
        attribute_of(token, "translate") == "no" or attribute_of(token, "mtype") in ("protected", "x-protected")
    )
    return name in _WHOLE or is_kept


def _piece(token: Token, start: int, end: int, pair: str, *, is_whole: bool) -> Piece:
    name = local_name(token.name)
    if token.kind == "text":
        return Piece(start, end, "text")
    if token.source.startswith(CDATA[0]) or token.kind == "other":
        return Piece(start, end, "empty")
    if name in _STARTS or name in _ENDS:
        keys = _KEYS[name] if name in _STARTS else _END_KEYS[name]
        key = next(filter(None, (attribute_of(token, key) for key in keys)), "")
        family = name if name in _STARTS else {"ept": "bpt", "ex": "bx", "ec": "sc", "em": "sm"}[name]
        return Piece(start, end, "start" if name in _STARTS else "end", f"{family} {key}" if key else "")
    if is_whole or token.kind == "empty" or not pair:
        return Piece(start, end, "empty")
    return Piece(start, end, "start" if token.kind == "start" else "end", pair)
