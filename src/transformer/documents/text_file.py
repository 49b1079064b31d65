"""Text files as they are on disk: their encoding and byte order mark are kept, and changes are spliced into them."""

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from transformer.errors import DataError

Edit = tuple[int, int, str]
"""Start and exclusive end of a part of a text, in characters, and the text that replaces it."""
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
MAX_BYTES: Final = 256 << 20
"""Maximum size of a document."""


@dataclass(frozen=True)
class TextFile:
    """A decoded file that can be encoded to the same bytes again.

    Attributes:
        name: Name of the file, for messages.
        text: Its text, with its line ends, without the byte order mark.
        encoding: Encoding, as Python names it.
        mark: Byte order mark; empty if it has none.
    """

    name: str
    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    def splice(self, edits: Iterable[Edit]) -> bytes:
        """Returns the bytes of the file with some parts replaced; edits at one place stay in their order.

        Raises:
            ValueError: Two edits overlap.
        """
        parts, position = list[str](), 0
        for start, end, replacement in sorted(edits, key=lambda edit: edit[:2]):
            if start < position:
                raise ValueError(f"edits overlap at character {start} of {self.name}")
            parts += [self.text[position:start], replacement]
            position = end
        return self.mark + "".join([*parts, self.text[position:]]).encode(self.encoding)

    def unencodable(self, text: str) -> str:
        """Returns the first character of a text that the encoding lacks; empty if it has all."""
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError as error:
            return text[error.start]
        return ""

    def comment_edit(self, start: int, comment: str) -> Edit:
        r"""Returns the edit that writes a comment before a place: on a line of its own if a line begins there.

        Characters that the encoding lacks are written as escapes, e.g. `\u0142`.

        Args:
            start: Place behind the indentation, in characters.
            comment: The comment as the format writes it.
        """
        comment = comment.encode(self.encoding, "backslashreplace").decode(self.encoding)
        indent = self.text[self.text.rfind("\n", 0, start) + 1 : start]
        return start, start, comment + (" " if indent.strip() else self.line_end + indent)

    def error(self, position: int, problem: str) -> DataError:
        """Returns an error that names the file and the line of a position.

        Args:
            position: Position in the text, in characters.
            problem: What is wrong, and what to do about it.
        """
        return DataError(f"{self.name}, line {self.line_of(position)}: {problem}")

    def line_of(self, position: int) -> int:
        """Returns the number of the line of a position, from 1."""
        return self.text.count("\n", 0, position) + 1

    @property
    def line_end(self) -> str:
        r"""Line end of the file: that of its first line, `\n` if it has none."""
        position = self.text.find("\n")
        return "\r\n" if position > 0 and self.text[position - 1] == "\r" else "\n"


def read_text_file(content: bytes, name: str, encoding: str = "") -> TextFile:
    """Decodes a file.

    Args:
        content: Bytes of the file.
        name: Name of the file, for messages.
        encoding: Encoding that the file declares; a byte order mark overrides it, and the default is UTF-8.

    Raises:
        DataError: The bytes are not in this encoding, the encoding is unknown, or the file is too large.
    """
    if len(content) > MAX_BYTES:
        raise DataError(f"{name}: larger than {MAX_BYTES >> 20} MiB; divide it into smaller files")
    mark, encoding = next(
        ((mark, marked) for mark, marked in _MARKS if content.startswith(mark)), (b"", encoding or "utf-8")
    )
    body = content.removeprefix(mark)
    try:
        text = body.decode(encoding)
        is_same = text.encode(encoding) == body
    except LookupError as error:
        raise DataError(f"{name}: its encoding {encoding!r:.60} is unknown; convert it to UTF-8") from error
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{name}, line {line}: 0x{body[error.start]:02x} is not {encoding.upper():.60}; convert the file to UTF-8"
        ) from error
    except (UnicodeError, ValueError) as error:
        raise DataError(f"{name}: it is not in its encoding {encoding!r:.60}; convert it to UTF-8") from error
    if not is_same:
        raise DataError(f"{name}: {encoding} writes some of its characters otherwise; convert it to UTF-8")
    return TextFile(name, text, encoding, mark)
