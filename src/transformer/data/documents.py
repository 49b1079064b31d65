"""A reader of documents that hold translations beside their sources: PO and XLIFF."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from transformer.documents.document import Segment
from transformer.documents.formats import Format, find_format
from transformer.documents.text_file import MAX_BYTES
from transformer.errors import DataError
from transformer.text.lines import COMPRESSIONS, open_bytes
from transformer.text.sentences import has_letter

SUFFIXES: Final = frozenset({".po", ".xlf", ".xliff"})
Pair = tuple[str, str]
_REASONS: Final = {"untranslated": "not translated", "fuzzy": "fuzzy"}
OTHER_CODES: Final = "other placeholders or tags"
OBSOLETE: Final = "obsolete"


def is_bilingual(path: Path) -> bool:
    """Whether a file is a document with translations, by its name; it may be compressed."""
    return not SUFFIXES.isdisjoint(path.suffixes[-2:])


def read_document_pairs(path: Path, unused: "Counter[str] | None" = None) -> Iterator[Pair]:
    """Yields the sources of a document with their translations, line by line if both have as many lines.

    Placeholders and inline codes are written as translation models see them: `%1$s`, `<x0>`.

    Args:
        path: Path of the document.
        unused: Counts of the translations that are not used, by reason.

    Raises:
        DataError: The file cannot be read, or is not of the format that its name says.
    """
    unused = Counter() if unused is None else unused
    with open_bytes(path) as stream:
        content = stream.read(MAX_BYTES + 1)
    document = _form(path).parse(content, str(path))
    unused += Counter({OBSOLETE: document.n_obsolete})
    for segment in document.segments:
        if segment.state != "translated":
            unused[_REASONS[segment.state]] += 1
        elif not segment.target:
            unused[OTHER_CODES] += 1
        else:
            yield from _lines(segment)


def _form(path: Path) -> Format:
    name = path.with_suffix("") if path.suffix in COMPRESSIONS else path
    form = find_format(name, b"")
    if form is None:
        raise DataError(f"{path} is not a document of a known format; rename it")
    return form


def _lines(segment: Segment) -> Iterator[Pair]:
    sources, targets = segment.text.split("\n"), segment.target.split("\n")
    if len(sources) != len(targets):
        yield segment.text.strip(), segment.target.strip()
        return
    for source, target in zip(sources, targets, strict=True):
        if has_letter(source) or has_letter(target):
            yield source.strip(), target.strip()
