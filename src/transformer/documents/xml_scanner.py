"""XML as tokens whose sources together are the whole text, at the positions that expat reports."""

from collections.abc import Iterator
from typing import Final
from xml.parsers import expat

import regex

from transformer.documents.text_file import TextFile, read_text_file
from transformer.errors import DataError
from transformer.text.markup import Token

_ENCODING: Final = regex.compile(rb"\A(?:\xef\xbb\xbf)?<\?xml\s[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})[\"']")
_TAG: Final = regex.compile(r"<[/]?(?P<name>[^\s/>]++)(?P<attributes>.*?)/?>\Z", regex.DOTALL)
NO_MEMORY: Final = expat.errors.codes[expat.errors.XML_ERROR_NO_MEMORY]
MAX_DEPTH: Final = 1000
"""Number of elements that may stand within each other."""
CDATA: Final = ("<![CDATA[", "]]>")
"""Beginning and end of a section in which no character is markup."""


def read_xml(content: bytes, name: str) -> tuple[TextFile, list[Token]]:
    """Reads an XML file.

    Args:
        content: Bytes of the file.
        name: Name of the file, for messages.

    Returns:
        The file and its tokens. CDATA sections, comments etc. are tokens of the kind "other".

    Raises:
        DataError: It is not well-formed, declares entities, or is nested too deeply.
    """
    declared = _ENCODING.match(content)
    file = read_text_file(content, name, declared[1].decode("ascii") if declared else "")
    return file, [*_tokens(file)]


def local_name(name: str) -> str:
    """Returns the name of an element without its prefix."""
    return name.rpartition(":")[2]


class _Events:
    """Records where events of expat begin, in bytes."""

    def __init__(self, file: TextFile) -> None:
        self.file = file
        self.places: list[tuple[int, str]] = []
        self.depth = 0
        self.inside = ""
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = False
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = lambda data: self._add("text")
        self.parser.CommentHandler = lambda data: self._add("other")
        self.parser.ProcessingInstructionHandler = lambda target, data: self._add("other")
        self.parser.StartCdataSectionHandler = lambda: self._enter("cdata")
        self.parser.EndCdataSectionHandler = self._leave
        self.parser.StartDoctypeDeclHandler = lambda *_: self._enter("doctype")
        self.parser.EndDoctypeDeclHandler = self._leave
        self.parser.EntityDeclHandler = self._refuse_entity
        self.parser.DefaultHandler = lambda data: self._add("text" if data.startswith("&") else "other")

    def _add(self, kind: str) -> None:
        if not self.inside:
            self.places.append((self.parser.CurrentByteIndex, kind))

    def _enter(self, inside: str) -> None:
        self._add("other")
        self.inside = inside

    def _leave(self) -> None:
        self.inside = ""

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH:,} elements within each other; this is not supported")
        self._add("start")

    def _end(self, name: str) -> None:
        self.depth -= 1
        self._add("end")

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise self._error(f"it declares the entity {name!r:.60}; replace its entities, e.g. with xmllint --noent")

    def _error(self, problem: str) -> DataError:
        return DataError(f"{self.file.name}, line {self.parser.CurrentLineNumber}: {problem}")

    def parse(self, data: bytes) -> None:
        """Parses a whole file.

        Raises:
            DataError: It is not well-formed, or not allowed.
            MemoryError: There is not enough memory.
        """
        try:
            self.parser.Parse(data, True)
        except expat.ExpatError as error:
            if error.code == NO_MEMORY:
                raise MemoryError from error
            problem = (expat.ErrorString(error.code) or "").removeprefix("not well-formed ").strip(
                "()"
            ) or "syntax error"
            raise DataError(f"{self.file.name}, line {error.lineno}: not XML: {problem}; correct the file") from error


def _tokens(file: TextFile) -> Iterator[Token]:
    """Yields the tokens of a file."""
    data = file.text.encode("utf-8")
    events = _Events(file)
    events.parse(data)
    places = [(0, "other"), *(place for place in events.places), (len(data), "")]
    kept = [place for index, place in enumerate(places[:-1]) if place[0] != places[index + 1][0]]
    merged: list[tuple[int, str]] = []
    for place in kept:
        if not (merged and place[1] == merged[-1][1] == "text"):
            merged.append(place)
    for (start, kind), (end, _) in zip(merged, [*merged[1:], places[-1]], strict=True):
        source = data[start:end].decode("utf-8")
        if kind == "start" or kind == "end":
            match = _TAG.match(source)
            name, attributes = (match["name"], match["attributes"]) if match else ("", "")
            yield Token("empty" if source.endswith("/>") else kind, source, name, attributes)
        else:
            yield Token("text" if kind == "text" else "other", source)
