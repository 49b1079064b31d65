"""Strings of PO files: escapes, and how a string is laid out on lines (GNU gettext, manual, Sec. "PO Files")."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import regex

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_NAMES: Final = {character: f"\\{name}" for name, character in _ESCAPES.items()} | {'"': '\\"', "\\": "\\\\"}
_ESCAPE: Final = regex.compile(r"\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|(?P<octal>[0-7]{1,3})|(?P<other>.))", regex.DOTALL)
_ESCAPED: Final = regex.compile(r'[\n\t\r\a\x08\f\v"\\]')
_LINE: Final = regex.compile(r"(?:[^\\]|\\[^n])*+(?:\\n|\Z)", regex.DOTALL)
_WORD: Final = regex.compile(r"[^ ]*+ *+")
DEFAULT_WIDTH: Final = 79
"""Number of columns of a line of gettext's programs, quotation marks included."""


def unescape(raw: str) -> str:
    r"""Replaces escapes by characters, e.g. `\n` by a line end."""
    return _ESCAPE.sub(_character, raw) if "\\" in raw else raw


def _character(match: "regex.Match[str]") -> str:
    if match["hex"]:
        return chr(int(match["hex"], 16))
    if match["octal"]:
        return chr(int(match["octal"], 8))
    return _ESCAPES.get(match["other"], match["other"])


def escape(text: str) -> str:
    r"""Replaces line ends, tabs, quotation marks and backslashes by escapes."""
    return _ESCAPED.sub(lambda match: _NAMES[match[0]], text)


@dataclass(frozen=True)
class Layout:
    """Layout of a string on lines.

    Attributes:
        begins_empty: Whether a string on several lines begins with `""` on the line of its keyword.
        width: Maximum number of columns of a line; 0 for any number, so that lines end at line ends of the text alone.
        is_single: Whether the string is on one line, whatever its length.
        is_multiple: Whether the string is on several lines, however short it is.
    """

    begins_empty: bool = True
    width: int = DEFAULT_WIDTH
    is_single: bool = False
    is_multiple: bool = False

    def lines(self, keyword: str, text: str) -> list[str]:
        """Returns the lines of a string, the keyword before the first one.

        Args:
            keyword: Keyword before the string, e.g. `msgstr[0]`.
            text: The string, unescaped.
        """
        parts = [part for part in _LINE.findall(escape(text)) if part]
        first = f'{keyword} "{"".join(parts)}"'
        fits = not self.width or columns(first) <= self.width
        if not parts or self.is_single or (len(parts) == 1 and fits and not self.is_multiple):
            return [first]
        wrapped = [line for part in parts for line in (_wrap(part, self.width - 2) if self.width else [part])]
        quoted = [f'"{line}"' for line in wrapped]
        return [f'{keyword} ""', *quoted] if self.begins_empty else [f"{keyword} {quoted[0]}", *quoted[1:]]


def layout_like(keyword: str, raw_lines: Sequence[str], width: int) -> Layout:
    """Returns the layout of a string, for its translation.

    Args:
        keyword: Keyword of the string.
        raw_lines: Contents of its quotation marks, one for each line.
        width: Maximum number of columns in the file; 0 for any number.
    """
    raw = "".join(raw_lines)
    if len(raw_lines) == 1:
        has_inner_end = "\\n" in raw[:-2]
        is_long = bool(width) and columns(f'{keyword} "{raw}"') > width
        return Layout(width=0 if is_long else width, is_single=has_inner_end or is_long)
    is_wrapped = any(line and not line.endswith("\\n") for line in raw_lines[1:-1]) or (
        bool(raw_lines[0]) and not raw_lines[0].endswith("\\n")
    )
    is_long = bool(width) and any(columns(line) + 2 > width for line in raw_lines)
    return Layout(begins_empty=not raw_lines[0], width=0 if is_long and not is_wrapped else width, is_multiple=True)


def infer_width(strings: Sequence[tuple[str, Sequence[str]]]) -> int:
    """Returns the width at which the strings of a file are wrapped; 0 if they are not wrapped, though some are long.

    Args:
        strings: Keyword of each string, and the contents of its quotation marks, one for each line.
    """
    widest, n_wrapped, n_long = 0, 0, 0
    for keyword, lines in strings:
        wrapped = [line for line in lines[1:-1] if line and not line.endswith("\\n")]
        n_wrapped += bool(wrapped)
        widest = max([widest, *(columns(line) + 2 for line in wrapped if " " in line.strip())])
        n_long += len(lines) == 1 and columns(f'{keyword} "{lines[0]}"') > DEFAULT_WIDTH + 1
    if n_long > n_wrapped:
        return 0
    return widest if n_wrapped and widest > DEFAULT_WIDTH // 2 else DEFAULT_WIDTH


def columns(text: str) -> int:
    """Returns the number of columns that a text takes: two for a wide character."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def _wrap(text: str, width: int) -> Iterator[str]:
    """Yields the lines of an escaped text, which end after spaces or between wide characters."""
    line, used = "", 0
    for word in _breakable(text):
        size = columns(word.rstrip(" "))
        if line and used + size > width:
            yield line
            line, used = "", 0
        line += word
        used += columns(word)
    if line:
        yield line


def _breakable(text: str) -> Iterator[str]:
    """Yields the parts of a text that stay on a line."""
    for word in _WORD.findall(text):
        if word.isascii():
            yield from [word] * bool(word)
            continue
        start = 0
        for index in range(1, len(word)):
            if all(unicodedata.east_asian_width(character) in "WF" for character in word[index - 1 : index + 1]):
                yield word[start:index]
                start = index
        yield word[start:]
