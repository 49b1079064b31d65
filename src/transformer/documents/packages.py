"""Documents of several XML files in a ZIP archive, as those of office programs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from transformer.documents.archive import Archive
from transformer.documents.document import KEPT, Document, Outcome, Segment, Writing
from transformer.documents.passages import MarkedUpText, Passage
from transformer.documents.text_file import TextFile
from transformer.documents.xml_scanner import read_xml
from transformer.text.markup import Token

FindPassages = Callable[[TextFile, Sequence[Token]], Sequence[Passage]]
"""Function of an XML file and its tokens that returns its passages."""


@dataclass(frozen=True)
class Package:
    """An archive with the XML files whose text is translated.

    Attributes:
        archive: The archive.
        parts: Name and text of each file.
    """

    archive: Archive
    parts: Sequence[tuple[str, MarkedUpText]]

    def document(self) -> Document:
        """Returns the package as a document."""
        passages = [passage for _, part in self.parts for passage in part.passages]
        segments = [Segment(passage.source, number) for number, passage in enumerate(passages, start=1)]
        return Document(segments, self.write)

    def write(self, outcomes: Sequence[Outcome], writing: Writing) -> bytes:
        """Returns the bytes of the archive with translations."""
        if all(outcome == KEPT for outcome in outcomes):
            return self.archive.content
        changes: dict[str, bytes] = {}
        ends = [*accumulate((len(part.passages) for _, part in self.parts), initial=0)]
        for (name, part), start, end in zip(self.parts, ends, ends[1:], strict=False):
            changes[name] = part.write(outcomes[start:end], writing)
        return self.archive.replaced(changes)


def read_package(archive: Archive, names: Sequence[str], find_passages: FindPassages) -> Package:
    """Reads XML files of an archive.

    Args:
        archive: The archive.
        names: Names of the files, in the order of the document's segments.
        find_passages: Function that finds the passages of a file.

    Raises:
        DataError: A file is not well-formed.
    """
    return Package(archive, [(name, _read_part(archive, name, find_passages)) for name in names])


def _read_part(archive: Archive, name: str, find_passages: FindPassages) -> MarkedUpText:
    file, tokens = read_xml(archive.read(name), f"{archive.name}, {name}")
    return MarkedUpText(file, [passage for passage in find_passages(file, tokens) if passage.has_letters])
