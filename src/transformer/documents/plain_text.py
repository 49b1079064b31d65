"""Plain text: each line is translated where it stands; empty lines and line ends are kept."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import regex

from transformer.documents.codes import CodedText
from transformer.documents.document import Document, Outcome, Segment, Writing
from transformer.documents.text_file import TextFile, read_text_file
from transformer.text.sentences import has_letter

_LINE: Final = regex.compile(r"[^\r\n]++")


def parse(content: bytes, name: str) -> Document:
    """Reads a text.

    Raises:
        DataError: It is not in UTF-8, or UTF-16 with a byte order mark.
    """
    file = read_text_file(content, name)
    spans = [match.span() for match in _LINE.finditer(file.text) if has_letter(match[0])]
    segments = [Segment(CodedText(file.text[start:end]), start, check=partial(_problem, file)) for start, end in spans]
    return Document(segments, partial(_write, file, spans), line_of=file.line_of)


def _problem(file: TextFile, translation: str) -> str:
    """Describes why a translation cannot be written; empty if it can."""
    missing = file.unencodable(translation)
    return f"{missing!r} cannot be written in {file.encoding}; convert the file to UTF-8" if missing else ""


def _write(file: TextFile, spans: Sequence[tuple[int, int]], outcomes: Sequence[Outcome], writing: Writing) -> bytes:
    pairs = zip(spans, outcomes, strict=True)
    return file.splice((*span, outcome.translation) for span, outcome in pairs if outcome.translation is not None)
