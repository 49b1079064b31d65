"""Files of an OOXML package by their content types (ECMA-376, part 2)."""

import re
from typing import Final

from transformer.documents.archive import Archive
from transformer.documents.attributes import attribute_of
from transformer.documents.xml_scanner import local_name, read_xml
from transformer.errors import DataError
from transformer.text.markup import unescape

CONTENT_TYPES: Final = "[Content_Types].xml"
"""Name of the file that names the content types."""
_NUMBER: Final = re.compile(r"(\d+)")


def parts_of_types(archive: Archive, types: re.Pattern[str]) -> list[str]:
    """Returns the names of the files whose content types end as given, slide 2 before slide 10.

    Args:
        archive: The package.
        types: Pattern of the ends of content types.

    Raises:
        DataError: There are none.
    """
    _, tokens = read_xml(archive.read(CONTENT_TYPES), f"{archive.name}, {CONTENT_TYPES}")
    members = {info.filename for info in archive.members}
    names: set[str] = set()
    for token in tokens:
        if local_name(token.name) == "Override" and types.search(attribute_of(token, "contenttype")):
            names.add(unescape(attribute_of(token, "partname")).removeprefix("/"))
    parts = sorted(names & members, key=lambda name: [int(part) if part.isdecimal() else part for part in _split(name)])
    if not parts:
        raise DataError(f"{archive.name}: it has no text of this kind; check the format")
    return parts


def _split(name: str) -> list[str]:
    """Splits a name at its numbers, which stand at odd places."""
    return _NUMBER.split(name)
