"""Recognition of files that are not plain text by their first bytes: documents, markup, subtitles, archives, images."""

import re
from collections.abc import Callable
from typing import Final

HEAD_BYTES: Final = 1 << 16
"""Number of bytes at the beginning of a file by which it is recognized."""
_SIGNATURES: Final = (
    (b"%PDF-", "a PDF file"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of an old version of Microsoft Office"),
    (b"{\\rtf", "an RTF document"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\xfd7zXZ\x00", "a file compressed by xz"),
    (b"BZh", "a file compressed by bzip2"),
    (b"\x1f\x8b\x08", "a file compressed by gzip, whose name does not end in .gz"),
    (b"\x28\xb5\x2f\xfd", "a file compressed by zstd, whose name does not end in .zst"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3\x00", "an SQLite database"),
)
_ZIP: Final = (
    (b"word/", "a DOCX document"),
    (b"ppt/", "a PPTX presentation"),
    (b"xl/", "an XLSX table"),
    (b"mimetypeapplication/vnd.oasis.opendocument.text", "an ODT document"),
    (b"mimetypeapplication/vnd.oasis.opendocument", "an OpenDocument file"),
    (b"mimetypeapplication/epub", "an EPUB book"),
)


def _has(pattern: bytes, flags: int = 0) -> Callable[[bytes], bool]:
    compiled = re.compile(pattern, flags | re.MULTILINE)
    return lambda head: compiled.search(head) is not None


_JSON_STRING: Final = rb'"(?:[^"\\\n]|\\.)*"\s*'
_TEXTS: Final[tuple[tuple[Callable[[bytes], bool], str], ...]] = (
    (_has(rb'^msgid ".*\n(?:(?:msgid_plural )?".*\n)*msgstr(?:\[0\])? "'), "a PO file"),
    (_has(rb"\A\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<xliff[\s>]", re.DOTALL), "an XLIFF file"),
    (_has(rb"\A\s*(?:<\?xml[^>]*>\s*)?(?:<!DOCTYPE tmx[^>]*>\s*)?<tmx[\s>]"), "a TMX file"),
    (
        _has(
            rb"\A\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<resources[\s>].*?<(?:string|plurals|string-array)[\s>]",
            re.DOTALL,
        ),
        "an Android resource file",
    ),
    (_has(rb"\A\s*(?:<!--.*?-->\s*)*(?:<!doctype html|<html[\s>])", re.IGNORECASE | re.DOTALL), "an HTML page"),
    (_has(rb"\A\s*<\?xml "), "an XML file"),
    (_has(rb"\AWEBVTT(?:[ \t].*)?\r?$"), "a WebVTT file"),
    (_has(rb"^\d+\r?\n\d\d:\d\d:\d\d,\d{3} --> \d\d:\d\d:\d\d,\d{3}"), "an SRT file"),
    (_has(rb"\A\s*(?:\[\s*)?\{\s*" + _JSON_STRING + rb":"), "a JSON file"),
    (_has(rb"\A\s*\[\s*" + _JSON_STRING + rb",\s*" + _JSON_STRING + rb"[,\]]"), "a JSON file"),
    (_has(rb"^```[\w+-]*\r?\n(?:.*\n)*?```[ \t]*\r?$"), "a Markdown file with code"),
)  # fmt: skip


def document_kind(head: bytes) -> str | None:
    """Returns what kind of file begins with the given bytes, with its article; None if it may be plain text.

    Args:
        head: First bytes of a file, decompressed if its name ends in .gz or .zst; `HEAD_BYTES` suffice.
    """
    head = head[:HEAD_BYTES]
    if head.startswith(b"PK\x03\x04"):
        return next((kind for mark, kind in _ZIP if mark in head), "a ZIP archive")
    if head[257:262] == b"ustar":
        return "a tar archive"
    if kind := next((kind for mark, kind in _SIGNATURES if head.startswith(mark)), None):
        return kind
    text = head.removeprefix(b"\xef\xbb\xbf")
    return next((kind for matches, kind in _TEXTS if matches(text)), None)
