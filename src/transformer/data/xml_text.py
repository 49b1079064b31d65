"""Decoding of XML files to text that an XML parser accepts, whatever their encoding."""

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from transformer.errors import DataError
from transformer.text.lines import Invalid, LineCounts

READ_BYTES: Final = 1 << 16
DECLARATION_BYTES: Final = 1024
"""Size of the beginning of a file in which the encoding must be declared."""
BYTE_ORDER_MARKS: Final = {
    codecs.BOM_UTF32_LE: "utf-32-le",  # begins like that of UTF-16
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
ZERO_PATTERNS: Final = {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
"""First bytes of UTF-16 without a byte order mark."""
ENCODING: Final = re.compile(rb"""^\s*<\?xml\s[^>]*?encoding\s*=\s*["']([^"']*)["']""")
BAD_CHARACTER, BAD_REFERENCE = "\U0010fffd", "\U0010fffc"
"""Private characters that stand for a character that XML does not allow, and for the `&` of a reference to one."""
NOT_XML: Final = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
REFERENCE: Final = re.compile("&(?=#(?:x([0-9A-Fa-f]+)|([0-9]+));)")
INCOMPLETE_REFERENCE: Final = re.compile("&[#0-9A-Za-z]{0,16}$")


def read_xml_text(stream: BinaryIO, name: str, counts: LineCounts, invalid: Invalid) -> Iterator[str]:
    """Yields the text of an XML file part by part.

    A character that XML does not allow, which no parser would read past, becomes `BAD_CHARACTER`, and the `&` of a
    reference to one becomes `BAD_REFERENCE`.

    Args:
        stream: Binary file.
        name: Name of the file in messages.
        counts: Counts that are updated while reading.
        invalid: "replace" replaces bytes that the encoding does not allow by U+FFFD, "error" raises an error.

    Raises:
        DataError: the encoding is unknown, or bytes do not belong to it.
    """
    beginning = stream.read(DECLARATION_BYTES)
    encoding, n_mark = _encoding(beginning, name)
    decoder = codecs.getincrementaldecoder(encoding)("strict" if invalid == "error" else "replace")
    chunk, line, kept = beginning[n_mark:], 1, ""
    while True:
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeError as error:
            line += chunk[: getattr(error, "start", 0)].count(b"\n")
            raise DataError(
                f"{name}, near line {line:,}: bytes that are not {encoding}; declare the file's encoding in its first "
                "line, or allow replacement (--set data.invalid_utf8=replace)"
            ) from error
        line += text.count("\n")
        counts.replaced += text.count("\ufffd") if invalid == "replace" else 0
        text = kept + text
        cut = INCOMPLETE_REFERENCE.search(text) if chunk else None
        text, kept = (text[: cut.start()], cut.group()) if cut else (text, "")
        yield NOT_XML.sub(BAD_CHARACTER, REFERENCE.sub(_mark_bad_reference, text))
        if not chunk:
            return
        chunk = stream.read(READ_BYTES)


def _mark_bad_reference(reference: re.Match[str]) -> str:
    hexadecimal, decimal = reference.groups()
    code = int(hexadecimal, 16) if hexadecimal else int(decimal[:9])
    is_allowed = code <= 0x10FFFF and not NOT_XML.match(chr(code))
    return "&" if is_allowed else BAD_REFERENCE


def _encoding(beginning: bytes, name: str) -> tuple[str, int]:
    """Returns the encoding of a file and the size of its byte order mark.

    Raises:
        DataError: Python does not know the declared encoding, or it is none of texts.
    """
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if beginning.startswith(mark):
            return encoding, len(mark)
    if beginning[:2] in ZERO_PATTERNS:
        return ZERO_PATTERNS[beginning[:2]], 0
    declared = ENCODING.match(beginning)
    encoding = declared.group(1).decode("ascii", "replace") if declared else "utf-8"
    if encoding.lower().startswith(("utf-16", "utf-32", "ucs-2", "ucs-4")):
        return "utf-8", 0  # the declaration itself is not in this encoding
    try:
        b"<".decode(encoding)  # also refuses codecs from bytes to bytes
        codecs.getincrementaldecoder(encoding)
    except (LookupError, ValueError) as error:
        raise DataError(f"{name}, line 1: the encoding {encoding!r} is unknown; convert the file to UTF-8") from error
    return encoding, 0
