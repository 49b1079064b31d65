"""Strings of Apple programs (`Localizable.strings`): the value of each key is translated where it stands."""

from typing import Final

import regex

from transformer.documents.document import Document
from transformer.documents.escaped_strings import Entry, strings_document
from transformer.documents.text_file import read_text_file

_STRING: Final = r"\"(?:[^\"\\]|\\.)*+\""
_TOKEN: Final = regex.compile(
    rf"/\*(?:[^*]|\*(?!/))*+\*/|//[^\r\n]*+|(?:{_STRING}|[\w.-]++)\s*+=\s*+\"(?P<value>(?:[^\"\\]|\\.)*+)\"\s*+;"
    rf"|{_STRING}|\s++|(?P<other>[\w.-]++|.)",
    regex.DOTALL,
)
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def parse(content: bytes, name: str) -> Document:
    """Reads a file of strings, in UTF-8 or UTF-16.

    Raises:
        DataError: It does not follow the syntax.
    """
    file = read_text_file(content, name)
    entries: list[Entry] = []
    for match in _TOKEN.finditer(file.text):
        if match["other"]:
            raise file.error(match.start(), f'{match["other"]!r:.20} is not "key" = "value";; correct the line')
        if match["value"]:
            entries.append(Entry(match.start(), match.start("value"), match["value"]))
    return strings_document(file, entries, lambda character: _ESCAPES.get(character, character), "/* {} */")
