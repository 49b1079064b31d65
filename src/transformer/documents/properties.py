"""Properties of Java: the value of each key is translated where it stands."""

from typing import Final

import regex

from transformer.documents.document import Document
from transformer.documents.escaped_strings import Entry, strings_document
from transformer.documents.text_file import read_text_file
from transformer.errors import DataError

_LINE: Final = regex.compile(
    r"^[ \t\f]*+(?P<entry>[#!][^\r\n]*+|(?:[^\s=:\\]|\\.)++(?:[ \t\f]*+[=:][ \t\f]*+|[ \t\f]++)"
    r"(?P<value>(?:[^\\\r\n]|\\\r?\n|\\.)*+))",
    regex.MULTILINE,
)
_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def parse(content: bytes, name: str) -> Document:
    """Reads a file of properties, in UTF-8 or, as before Java 9, in ISO 8859-1.

    Raises:
        DataError: It is too large.
    """
    try:
        file = read_text_file(content, name)
    except DataError:
        file = read_text_file(content, name, "ISO-8859-1")
    entries = [
        Entry(match.start("entry"), match.start("value"), match["value"])
        for match in _LINE.finditer(file.text)
        if match["value"]
    ]
    return strings_document(file, entries, lambda character: _ESCAPES.get(character, character), "# {}")
