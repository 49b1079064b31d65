"""Strings with escapes (backslashes) that hold messages: they are read, and written with the escapes of the source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import regex

from transformer.documents.codes import CodedText
from transformer.documents.document import Document, Outcome, Segment, Writing
from transformer.documents.message_format import Message, MessageError, read_message, writing_problem
from transformer.documents.text_file import Edit, TextFile
from transformer.text.sentences import has_letter

_TOKEN: Final = regex.compile(
    r"\\[uU](?P<code>[0-9a-fA-F]{4})|(?P<break>\\\r?\n[ \t\f]*+)|\\(?P<escape>.)|[^\\]", regex.DOTALL
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_SURROGATES: Final = regex.compile("[\ud800-\udfff]")


class Entry(NamedTuple):
    """A key with its value.

    Attributes:
        start: Where the key begins in the file, in characters.
        value_start: Where the value begins, without a quotation mark.
        value: The value as written.
    """

    start: int
    value_start: int
    value: str


@dataclass(frozen=True)
class EscapedString:
    """A string of a file.

    Attributes:
        file: The file.
        entry: Where it stands, and how it is written.
        message: The message; None if it is not understood.
        escape: Function that escapes a character.
        escapes_all: Whether characters beyond ASCII are written as escapes.
    """

    file: TextFile
    entry: Entry
    message: Message | None
    escape: Callable[[str], str]
    escapes_all: bool

    @property
    def source(self) -> CodedText:
        """Text of the message with stand-ins."""
        return self.message.source if self.message else CodedText(unescape_string(self.entry.value))

    def problem(self, translation: str) -> str:
        """Describes why a translation cannot be written; empty if it can."""
        return writing_problem(self.message, translation, None if self.escapes_all else self.file)

    def edit(self, translation: str) -> Edit:
        """Returns the edit that writes a translation.

        Characters that the source escapes are escaped alike. Lines are continued as in the source if the length is the
        same.
        """
        text = "".join(piece for piece, _ in self.message.render(translation)) if self.message else ""
        forms, breaks, n_characters = self._forms()
        characters = [
            (breaks.get(index, "") if len(text) == n_characters else "") + self._written(forms, character)
            for index, character in enumerate(text)
        ]
        start, literal = self.entry.value_start, self.entry.value
        return start, start + len(literal), "".join(characters)

    def _written(self, forms: dict[str, str], character: str) -> str:
        if character in forms:
            return forms[character]
        if not character.isascii() and self.escapes_all:
            data = character.encode("utf-16-be")
            return "".join(f"\\u{data[place]:02x}{data[place + 1]:02x}" for place in range(0, len(data), 2))
        return self.escape(character)

    def _forms(self) -> tuple[dict[str, str], dict[int, str], int]:
        """Returns how characters are written that are escaped throughout or never, breaks by place, and the length."""
        forms: dict[str, str] = {}
        plain: set[str] = set()
        breaks: dict[int, str] = {}
        place = 0
        for match in _TOKEN.finditer(self.entry.value):
            if match["break"]:
                breaks[place] = match[0]
                continue
            character = unescape_string(match[0])
            place += 1
            if len(match[0]) > 1:
                forms[character] = match[0]
            else:
                plain.add(character)
        forms = {character: form for character, form in forms.items() if character not in plain}
        return forms | {character: character for character in plain & set("\n\r\t")}, breaks, place


def unescape_string(literal: str) -> str:
    """Returns the text of a string with escapes; those of surrogates stay apart."""

    def character(match: "regex.Match[str]") -> str:
        if match["code"]:
            return chr(int(match["code"], 16))
        if match["break"]:
            return ""
        return _ESCAPES.get(match["escape"], match["escape"]) if match["escape"] else match[0]

    return _TOKEN.sub(character, literal)


def strings_document(file: TextFile, entries: Sequence[Entry], escape: Callable[[str], str], comment: str) -> Document:
    """Returns a document of strings with escapes; those without letters are left out.

    Args:
        file: The file.
        entries: Its keys with their values.
        escape: Function that escapes a character.
        comment: How a comment is written, e.g. `# {}`.
    """
    escapes_all = file.text.isascii() and "\\u" in file.text
    strings: list[EscapedString] = []
    for entry in entries:
        text = unescape_string(entry.value)
        if not has_letter(text) or _SURROGATES.search(text):
            continue
        try:
            message = read_message(text)
        except MessageError:
            message = None
        strings.append(EscapedString(file, entry, message, escape, escapes_all))
    segments = [Segment(string.source, string.entry.value_start, check=string.problem) for string in strings]
    return Document(segments, partial(_write, file, strings, comment), line_of=file.line_of)


def _write(
    file: TextFile, strings: Sequence[EscapedString], comment: str, outcomes: Sequence[Outcome], writing: Writing
) -> bytes:
    edits: list[Edit] = []
    for string, outcome in zip(strings, outcomes, strict=True):
        if outcome.comment and writing.mark != "none":
            text = outcome.comment.replace("*/", "* /")
            text = text.encode("ascii", "backslashreplace").decode() if string.escapes_all else text
            edits.append(file.comment_edit(string.entry.start, comment.format(text)))
        if outcome.translation is not None:
            edits.append(string.edit(outcome.translation))
    return file.splice(edits)
