"""DOCX documents of Word: text of paragraphs, tables, text boxes, headers, footers, notes and comments.

Text that a tracked change deleted stays; that which it inserted is text.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from transformer.documents.archive import read_archive
from transformer.documents.content_types import parts_of_types
from transformer.documents.document import Document
from transformer.documents.packages import read_package
from transformer.documents.passages import Passage
from transformer.documents.run_items import ItemReader, Layout
from transformer.documents.runs import read_run_passage
from transformer.documents.text_file import TextFile
from transformer.text.markup import Token

_TYPES: Final = re.compile(
    r"(?:wordprocessingml\.(?:document|template)\.main|ms-word\.(?:document|template)\.macroEnabledTemplate\.main"
    r"|ms-word\.document\.macroEnabled\.main|wordprocessingml\.(?:header|footer|footnotes|endnotes|comments))\+xml"
)
WORD: Final = Layout(
    "w:",
    '<w:t xml:space="preserve">',
    frozenset(["hyperlink", "ins", "moveTo", "smartTag", "sdt", "customXml", "dir", "bdo"]),
    frozenset(["br", "cr", "tab", "ptab"]),
    frozenset(
        [
            "proofErr", "bookmarkStart", "bookmarkEnd", "commentRangeStart", "commentRangeEnd", "commentReference",
            "lastRenderedPageBreak", "permStart", "permEnd", "moveFromRangeStart", "moveFromRangeEnd",
            "moveToRangeStart", "moveToRangeEnd", "annotationRef",
        ]
    ),
)  # fmt: skip
"""Names of the elements of WordprocessingML."""


def parse(content: bytes, name: str) -> Document:
    """Reads a DOCX document.

    Raises:
        DataError: It is not DOCX, is damaged, encrypted, or unpacks to more than documents do.
    """
    archive = read_archive(content, name)
    return read_package(archive, parts_of_types(archive, _TYPES), partial(run_passages, layout=WORD)).document()


def run_passages(file: TextFile, tokens: Sequence[Token], layout: Layout) -> list[Passage]:
    """Returns the passages of an XML file with runs.

    Args:
        file: The file.
        tokens: Its tokens.
        layout: Names of elements.
    """
    read = (read_run_passage(file, items, layout) for items in ItemReader(tokens, layout).paragraphs())
    return [passage for passage in read if passage is not None]
