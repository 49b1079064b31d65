"""Blocks of markup as pieces of passages: text, and the inline tags within it."""

from collections.abc import Collection, Sequence
from itertools import accumulate

from transformer.documents.passages import Piece
from transformer.text.markup import Token, matching_tags
from transformer.text.markup_templates import trim_block

_SPACES = " \t\r\n\f"


def block_pieces(block: Sequence[Token], start: int, hidden: Collection[int] = ()) -> list[Piece]:
    """Returns the pieces of a block without the markup and the white space at its ends; none if it has no text.

    Args:
        block: Tokens of the block.
        start: Position of the block in the file, in characters.
        hidden: Indices of tokens that the translator need not see.
    """
    is_text = [token.kind == "text" and not token.source.isspace() for token in block]
    if not any(is_text):
        return []
    edges = [*accumulate((len(token.source) for token in block), initial=start)]
    first, last = trim_block(block, is_text)
    partners = matching_tags(block)
    pairs = {index: str(begin) for begin, end in partners.items() for index in (begin, end)}
    pieces: list[Piece] = []
    for index in range(first, last):
        token = block[index]
        if index in hidden:
            kind = "hidden"
        elif token.kind == "text":
            kind = "text"
        else:
            kind = token.kind if index in pairs and token.kind in ("start", "end") else "empty"
        pieces.append(Piece(edges[index], edges[index + 1], kind, pairs.get(index, "")))
    for place, strip in ((0, str.lstrip), (-1, str.rstrip)):
        piece = pieces[place]
        if piece.kind == "text":
            source = block[first if place == 0 else last - 1].source
            space = len(source) - len(strip(source, _SPACES))
            begin, end = (piece.start + space, piece.end) if place == 0 else (piece.start, piece.end - space)
            pieces[place] = Piece(begin, end, "text")
    return pieces
