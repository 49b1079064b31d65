"""ODT, ODS and ODP documents (OpenDocument): text of paragraphs, headings, tables, text boxes, notes and comments.

Text that a tracked change deleted stays.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import regex

from transformer.documents.archive import read_archive
from transformer.documents.attributes import attribute_of
from transformer.documents.blocks import block_pieces
from transformer.documents.document import Document
from transformer.documents.packages import read_package
from transformer.documents.passages import Passage, read_passage
from transformer.documents.text_file import TextFile
from transformer.documents.xml import TEXT
from transformer.text.markup import Token

_PARTS: Final = ("content.xml", "styles.xml")
_PARAGRAPHS: Final = frozenset(["text:p", "text:h"])
_BREAKS: Final = frozenset(["text:line-break", "text:tab"])
_ENCLOSING: Final = frozenset(["text:span", "text:a", "text:meta", "text:ruby", "text:ruby-base"])
_HIDDEN: Final = frozenset(
    [
        "text:bookmark", "text:bookmark-start", "text:bookmark-end", "text:soft-page-break", "text:change",
        "text:change-start", "text:change-end", "office:annotation-end", "text:reference-mark-start",
        "text:reference-mark-end", "text:toc-mark", "text:toc-mark-start", "text:toc-mark-end",
    ]
)  # fmt: skip
_KEPT: Final = frozenset(["text:tracked-changes", "dc:creator", "meta:creator-initials"])
_STYLE: Final = regex.compile(
    r"<style:style\s[^<>]*?style:name=\"([^\"]*+)\"[^<>]*+>\s*<style:text-properties((?:\s+[\w:-]++=\"[^\"]*+\")*+)\s*/>\s*</style:style>"
)


def parse(content: bytes, name: str) -> Document:
    """Reads an OpenDocument file.

    Raises:
        DataError: It is not OpenDocument, is damaged, encrypted, or unpacks to more than documents do.
    """
    archive = read_archive(content, name)
    members = {info.filename for info in archive.members}
    parts = [part for part in _PARTS if part in members or part == _PARTS[0]]
    return read_package(archive, parts, find_passages).document()


def find_passages(file: TextFile, tokens: Sequence[Token]) -> list[Passage]:
    """Returns the passages of an XML file of OpenDocument.

    Args:
        file: The file.
        tokens: Its tokens.
    """
    invisible = _invisible_styles(file.text)
    return [passage for block, start in _blocks(tokens) if (passage := _passage(file, block, start, invisible))]


def _invisible_styles(text: str) -> set[str]:
    """Returns the names of the styles that office programs add to number edits, and which show nothing."""
    return {
        match[1]
        for match in _STYLE.finditer(text)
        if all(name.startswith("officeooo:") for name in regex.findall(r"([\w:-]+)=\"", match[2]))
    }


def _blocks(tokens: Sequence[Token]) -> Iterator[tuple[list[Token], int]]:
    """Yields the tokens of each paragraph between line breaks, with their position; inner elements are one token."""
    edges = [0]
    partners: dict[int, int] = {}
    open_tags: list[int] = []
    for index, token in enumerate(tokens):
        edges.append(edges[-1] + len(token.source))
        if token.kind == "start":
            open_tags.append(index)
        elif token.kind == "end":
            partners[open_tags.pop()] = index
    kept_until = 0
    for index, token in enumerate(tokens):
        if index < kept_until or token.kind != "start":
            continue
        if token.name in _KEPT:
            kept_until = partners[index]
        elif token.name in _PARAGRAPHS:
            yield from _paragraph(tokens, edges, partners, index)


def _paragraph(
    tokens: Sequence[Token], edges: Sequence[int], partners: dict[int, int], start: int
) -> Iterator[tuple[list[Token], int]]:
    """Yields the tokens of a paragraph between line breaks."""
    block: list[Token] = []
    index = start + 1
    position = edges[index]
    depth = 0
    while index < partners[start]:
        token = tokens[index]
        last = index
        if token.name in _BREAKS and depth == 0:
            last = partners.get(index, index)
            yield block, position
            block, position = [], edges[last + 1]
        elif token.kind == "start" and token.name not in _ENCLOSING:
            last = partners[index]
            source = "".join(inner.source for inner in tokens[index : last + 1])
            block.append(Token("other", source, token.name))
        else:
            depth += (token.kind == "start") - (token.kind == "end")
            block.append(token)
        index = last + 1
    yield block, position


def _passage(file: TextFile, block: Sequence[Token], start: int, invisible: set[str]) -> Passage | None:
    hidden: set[int] = set()
    open_spans: list[bool] = []
    for index, token in enumerate(block):
        if token.name in _HIDDEN or (token.kind == "other" and not token.name):
            hidden.add(index)
        elif token.kind == "start":
            is_invisible = token.name == "text:span" and attribute_of(token, "text:style-name") in invisible
            open_spans.append(is_invisible)
            hidden |= {index} if is_invisible else set()
        elif token.kind == "end" and open_spans and open_spans.pop():
            hidden.add(index)
    pieces = block_pieces(block, start, hidden)
    return read_passage(file, pieces, TEXT) if pieces else None
