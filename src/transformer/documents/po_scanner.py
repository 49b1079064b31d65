"""Scanner of PO files: entries with the positions of their strings and flags, in one pass over the lines."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import regex

from transformer.documents.po_strings import unescape
from transformer.documents.text_file import TextFile

_LINES: Final = regex.compile(r"[^\n]*+\n|[^\n]++")
_KEYWORD: Final = regex.compile(
    r"[ \t]*+(?P<keyword>msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?|domain)(?=[ \t\"])"
)
_STRING: Final = regex.compile(r"\"(?P<raw>(?:[^\"\\]|\\.)*+)\"")
_SPACE: Final = regex.compile(r"[ \t\r\n\f\v]*+")


@dataclass
class Field:
    """A string of an entry with its keyword.

    Attributes:
        keyword: Keyword, e.g. `msgid` or `msgstr[0]`.
        start: Position of the keyword.
        end: Position after the last quotation mark.
        raw_lines: Contents of the quotation marks, as written.
    """

    keyword: str
    start: int
    end: int = 0
    raw_lines: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """The string."""
        return "".join(map(unescape, self.raw_lines))


@dataclass
class Entry:
    """An entry of a PO file.

    Attributes:
        start: Position of the first line, a comment if there is one.
        keywords: Position of the line of the first keyword.
        comments: Start and end of each line of comments, obsolete entries excluded, line ends included.
        fields: Strings by keyword, in order.
    """

    start: int
    keywords: int = -1
    comments: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    fields: dict[str, Field] = field(default_factory=dict[str, Field])

    @property
    def targets(self) -> list[Field]:
        """The strings of the translation."""
        return [part for keyword, part in self.fields.items() if keyword.startswith("msgstr")]

    def comment_lines(self, file: TextFile, beginning: str) -> list[tuple[int, int]]:
        """Returns the start and the end of the comments with a beginning, e.g. `#,`."""
        return [span for span in self.comments if file.text.startswith(beginning, span[0])]

    def flags(self, file: TextFile) -> list[str]:
        """Returns the flags, e.g. `fuzzy` and `c-format`."""
        spans = self.comment_lines(file, "#,")
        return [flag.strip() for start, end in spans for flag in file.text[start + 2 : end].split(",") if flag.strip()]


def scan_entries(file: TextFile) -> Iterator[Entry]:
    """Yields the entries of a PO file, without obsolete ones.

    Raises:
        DataError: A line is neither a comment nor a string with its keyword, or an entry is incomplete.
    """
    entry: Entry | None = None
    last: Field | None = None
    for match in _LINES.finditer(file.text):
        start, end = match.span()
        first = _SPACE.match(file.text, start, end).end()  # pyright: ignore[reportOptionalMemberAccess]
        if first == end:
            continue
        if file.text[first] == "#":
            if entry is not None and entry.fields:
                yield _complete(file, entry)
                entry = None
            last = None
            if not file.text.startswith("#~", first):
                entry = entry or Entry(start)
                entry.comments.append((first, end))
            continue
        keyword = _KEYWORD.match(file.text, start, end)
        if keyword:
            name = keyword["keyword"]
            if entry is not None and entry.targets and not name.startswith("msgstr"):
                yield _complete(file, entry)
                entry = None
            entry = entry or Entry(start)
            if name in entry.fields:
                raise file.error(start, f"a second {name} in one entry; correct the entry")
            last = entry.fields[name] = Field(name, keyword.start("keyword"))
            entry.keywords = start if entry.keywords < 0 else entry.keywords
            first = keyword.end()
        if last is None:
            raise file.error(
                start, f"{file.text[first:end].strip()!r:.40} is not a line of a PO file; correct the line"
            )
        _read_strings(file, last, first, end)
    if entry is not None and entry.fields:
        yield _complete(file, entry)


def _read_strings(file: TextFile, part: Field, start: int, end: int) -> None:
    """Adds the strings of a line to a field.

    Raises:
        DataError: The line has something else, or a quotation mark is missing.
    """
    while True:
        start = _SPACE.match(file.text, start, end).end()  # pyright: ignore[reportOptionalMemberAccess]
        if start == end:
            return
        string = _STRING.match(file.text, start, end)
        if string is None or "\n" in string["raw"]:
            raise file.error(start, "a quotation mark is missing, or text is outside of it; correct the line")
        part.raw_lines.append(string["raw"])
        start = part.end = string.end()


def _complete(file: TextFile, entry: Entry) -> Entry:
    """Returns an entry that has a source and a translation, if only an empty one.

    Raises:
        DataError: It lacks one.
    """
    if any(not part.raw_lines for part in entry.fields.values()):
        raise file.error(entry.keywords, "a string is missing behind a keyword; correct the entry")
    if "domain" in entry.fields and len(entry.fields) == 1:
        return entry
    lacking = "msgid" if "msgid" not in entry.fields else "msgstr" if not entry.targets else ""
    if lacking:
        raise file.error(entry.keywords, f"the entry has no {lacking}; correct the entry")
    ordered = [part.start for part in entry.targets]
    if ordered != sorted(ordered) or max(entry.fields.values(), key=lambda part: part.start) not in entry.targets:
        raise file.error(entry.keywords, "msgstr is not the last keyword of its entry; correct the order")
    return entry
