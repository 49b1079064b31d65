"""PPTX presentations of PowerPoint: text of slides, tables, notes, charts and diagrams."""

import re
from functools import partial
from typing import Final

from transformer.documents.archive import read_archive
from transformer.documents.content_types import parts_of_types
from transformer.documents.document import Document
from transformer.documents.docx import run_passages
from transformer.documents.packages import read_package
from transformer.documents.run_items import Layout

_TYPES: Final = re.compile(r"(?:presentationml\.(?:slide|notesSlide)|drawingml\.(?:chart|diagramData))\+xml")
DRAWING: Final = Layout("a:", "<a:t>", frozenset(), frozenset(["br", "tab"]), frozenset())
"""Names of the elements of DrawingML."""


def parse(content: bytes, name: str) -> Document:
    """Reads a PPTX presentation.

    Raises:
        DataError: It is not PPTX, is damaged, encrypted, or unpacks to more than documents do.
    """
    archive = read_archive(content, name)
    return read_package(archive, parts_of_types(archive, _TYPES), partial(run_passages, layout=DRAWING)).document()
