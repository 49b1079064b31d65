"""JSON files of messages: strings are translated where they stand; keys, placeholders, escapes and layout are kept."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import regex

from transformer.documents.codes import CodedText
from transformer.documents.document import Document, Outcome, Segment, Writing
from transformer.documents.message_format import Message, MessageError, read_message, writing_problem
from transformer.documents.text_file import Edit, TextFile, read_text_file
from transformer.text.sentences import has_letter

_TOKEN: Final = regex.compile(r"\"(?:[^\"\\]|\\.)*+\"|[{}\[\]:,]")
_ESCAPE: Final = regex.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.")
NO_TEXT: Final = regex.compile(r"[\w.#/\\:@+-]*[._/\\#:@\d][\w.#/\\:@+-]*|(?:https?://|mailto:)\S*")
"""Strings that are names, colours, numbers, paths or addresses."""
_KEPT_KEY: Final = regex.compile(r"[@$]")
"""Beginning of keys whose values are not messages: `@key` of ARB files, `$schema`."""


@dataclass(frozen=True)
class MessageString:
    """A string of a file.

    Attributes:
        file: The file.
        start: Position of its first quotation mark.
        literal: The string as written, with its quotation marks.
        message: The message; None if it is not understood.
        escapes_all: Whether characters beyond ASCII are written as escapes.
    """

    file: TextFile
    start: int
    literal: str
    message: Message | None
    escapes_all: bool

    @property
    def source(self) -> CodedText:
        """Text of the message with stand-ins."""
        return self.message.source if self.message else CodedText(json.loads(self.literal))

    def problem(self, translation: str) -> str:
        """Describes why a translation cannot be written; empty if it can."""
        return writing_problem(self.message, translation, None if self.escapes_all else self.file)

    def edit(self, translation: str) -> Edit:
        """Returns the edit that writes a translation."""
        pieces = self.message.render(translation) if self.message else []
        text = "".join(piece for piece, _ in pieces)
        return self.start, self.start + len(self.literal), f'"{"".join(map(self._written, text))}"'

    def _written(self, character: str) -> str:
        return self._forms.get(character) or self._usual(character)

    def _usual(self, character: str) -> str:
        return json.dumps(character, ensure_ascii=self.escapes_all)[1:-1]

    @cached_property
    def _forms(self) -> dict[str, str]:
        """Characters that the string writes as escapes throughout."""
        plain = _ESCAPE.sub("", self.literal[1:-1])
        forms = {json.loads(f'"{escape}"'): escape for escape in _ESCAPE.findall(self.literal)}
        return {character: escape for character, escape in forms.items() if character not in plain}


def parse(content: bytes, name: str) -> Document:
    """Reads a JSON file.

    Raises:
        DataError: It is not JSON in UTF-8.
    """
    file = read_text_file(content, name)
    try:
        json.loads(file.text, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        raise file.error(error.pos, "it is not JSON; correct it here or just before") from error
    except RecursionError as error:
        raise file.error(0, "it is nested too deeply; divide the file") from error
    escapes_all = file.text.isascii() and bool(regex.search(r"\\u(?!00[0-7])", file.text))
    strings = [_message_string(file, start, literal, escapes_all) for start, literal in _strings(file)]
    segments = [Segment(string.source, string.start, check=string.problem) for string in strings]
    return Document(segments, partial(_write, file, strings), line_of=file.line_of)


def _message_string(file: TextFile, start: int, literal: str, escapes_all: bool) -> MessageString:
    try:
        message = read_message(json.loads(literal))
    except MessageError:
        message = None
    return MessageString(file, start, literal, message, escapes_all)


def _strings(file: TextFile) -> Iterator[tuple[int, str]]:
    """Yields the position and the source of each string that may be a message."""
    open_values: list[tuple[str, bool]] = []  # bracket, and whether the strings within it are kept
    key = ""
    for token in _TOKEN.finditer(file.text):
        source = token[0]
        container, is_kept = open_values[-1] if open_values else ("", False)
        if source in "{[":
            open_values.append((source, is_kept or _KEPT_KEY.match(key) is not None))
            key = ""
        elif source in "}]":
            open_values.pop()
            key = ""
        elif source == ",":
            key = key if container == "[" else ""
        elif source[0] == '"' and container == "{" and not key:
            key = source[1:-1] or " "
        elif source[0] == '"' and not is_kept and not _KEPT_KEY.match(key) and _may_be_text(source):
            yield token.start(), source


def _may_be_text(literal: str) -> bool:
    """Whether a string may be a message: it has a letter and is not a name, a path or an address."""
    text: str = json.loads(literal, strict=False)
    has_text = has_letter(text) and NO_TEXT.fullmatch(text) is None
    return has_text and not regex.search(r"[\ud800-\udfff]", text)


def _write(file: TextFile, strings: Sequence[MessageString], outcomes: Sequence[Outcome], writing: Writing) -> bytes:
    pairs = zip(strings, outcomes, strict=True)
    return file.splice(string.edit(outcome.translation) for string, outcome in pairs if outcome.translation is not None)
