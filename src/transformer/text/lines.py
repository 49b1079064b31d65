"""Decoding of bytes to lines. Only a line feed ends a line, so n input lines always give n output lines."""

import errno
import gzip
import os
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final, Literal, cast

from transformer.errors import DataError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
COMPRESSIONS: Final = (".gz", ".zst")
"""Suffixes of compressed files that are read like plain ones."""
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
BUFFER_BYTES: Final = 1 << 16
MAX_LINE_CHARACTERS: Final = 1 << 18
"""Longest line, in characters, that reaches a tokenizer, which takes about 200 bytes of memory for each of them."""
MAX_PART_BYTES: Final = 1 << 16
"""Size of the parts in which a long line of running text is read."""
BYTES_PER_CHARACTER: Final = 4
"""Maximum in UTF-8."""
Invalid = Literal["error", "replace"]
Overlong = Literal["error", "cut"]
REPLACEMENT: Final = ", or allow replacement (--invalid-utf8 replace, or data.invalid_utf8)"


@dataclass
class LineCounts:
    r"""Counts of the lines read.

    Attributes:
        lines: Number of lines read, including an unterminated last line.
        carriage_returns: Number of lines that ended in `\r\n`; the `\r` is not part of the line.
        replaced: Number of lines in which invalid bytes were replaced by U+FFFD or a byte order mark was removed.
    """

    lines: int = 0
    carriage_returns: int = 0
    replaced: int = 0


def is_overlong(text: str) -> bool:
    """Whether a text is too long for a tokenizer, see `MAX_LINE_CHARACTERS`."""
    return len(text) > MAX_LINE_CHARACTERS


def bounded_lines(stream: BinaryIO, limit: int = MAX_LINE_CHARACTERS) -> Iterator[bytes]:
    r"""Yields the lines of a binary file up to and including each `\n`, in bounded memory.

    Of a line of more bytes than `limit` characters can have, the beginning is kept, which still exceeds the limit.

    Args:
        stream: Binary file.
        limit: Maximum number of characters of a line that is kept as it is.
    """
    n_bytes = max_bytes(limit)
    while raw := stream.readline(n_bytes):
        if len(raw) == n_bytes and not raw.endswith(b"\n"):
            raw = whole_characters(raw) + b"\n"
            while (rest := stream.readline(BUFFER_BYTES)) and not rest.endswith(b"\n"):
                pass
        yield raw


def max_bytes(characters: int) -> int:
    """Returns the maximum number of bytes of a line of so many characters, a byte order mark included."""
    return BYTES_PER_CHARACTER * (characters + 2)


def whole_characters(raw: bytes) -> bytes:
    """Removes an incomplete character at the end."""
    for size in range(1, BYTES_PER_CHARACTER):
        if raw[-size] >= 0xC0:  # the first byte of a character of several bytes
            return raw[:-size]
        if raw[-size] < 0x80:
            break
    return raw


class LineBuffer:
    """A line that arrives in parts; the rest of a line that is far too long is dropped.

    Args:
        limit: Maximum number of characters of a line that is kept as it is.
    """

    def __init__(self, limit: int) -> None:
        self._n_bytes = max_bytes(limit)
        self._parts, self._room = list[bytes](), self._n_bytes

    def add(self, part: bytes) -> None:
        """Appends a part."""
        if self._room > 0:
            self._parts.append(part)
            self._room -= len(part)

    def take(self) -> bytes:
        """Returns the line and begins the next one."""
        line = b"".join(self._parts)
        if self._room <= 0:
            line = whole_characters(line)
        self._parts, self._room = [], self._n_bytes
        return line


def decode_lines(
    stream: Iterable[bytes],
    name: str,
    counts: LineCounts | None = None,
    invalid: Invalid = "error",
    remedy: str = REPLACEMENT,
    overlong: Overlong = "error",
    limit: int = MAX_LINE_CHARACTERS,
) -> Iterator[str]:
    r"""Yields the lines of a binary stream without their line ends.

    Args:
        stream: Iterable of bytes up to and including each `\n`, such as `bounded_lines` of a binary file.
        name: Name of the file in messages.
        counts: Counts that are updated while reading.
        invalid: "replace" replaces bytes that are not UTF-8 by U+FFFD, "error" raises an error.
        remedy: Alternative to changing the file, appended to error messages.
        overlong: "cut" shortens a line of more than `limit` characters to one more, so that callers can count it as too
            long; "error" raises an error.
        limit: Maximum number of characters.

    Raises:
        DataError: a line is not UTF-8 or has too many characters, or the stream starts with a byte order mark.
    """
    counts = counts if counts is not None else LineCounts()
    for raw in stream:
        counts.lines += 1
        line = raw.removesuffix(b"\n")
        if raw.endswith(b"\r\n"):
            line = line.removesuffix(b"\r")
            counts.carriage_returns += 1
        if counts.lines == 1:
            line = _without_mark(line, name, counts, invalid, remedy)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            if invalid == "error":
                raise DataError(
                    f"{name}, line {counts.lines}, byte {error.start + 1}: 0x{line[error.start]:02x} is not UTF-8; "
                    f"convert the file{remedy}"
                ) from error
            counts.replaced += 1
            text = line.decode("utf-8", errors="replace")
        if len(text) > limit:
            if overlong == "error":
                raise DataError(f"{name}, line {counts.lines}: more than {limit:,} characters; divide it into lines")
            text = text[: limit + 1]
        yield text


def _without_mark(line: bytes, name: str, counts: LineCounts, invalid: Invalid, remedy: str) -> bytes:
    if line.startswith(UTF16_MARKS):
        raise DataError(f"{name}, line 1, byte 1: the file looks like UTF-16; convert it to UTF-8")
    if not line.startswith(BYTE_ORDER_MARK):
        return line
    if invalid == "error":
        raise DataError(f"{name}, line 1, byte 1: the file starts with a byte order mark; remove it{remedy}")
    counts.replaced += 1
    return line.removeprefix(BYTE_ORDER_MARK)


def read_lines(
    path: Path,
    counts: LineCounts | None = None,
    invalid: Invalid = "error",
    remedy: str = REPLACEMENT,
    overlong: Overlong = "error",
    limit: int = MAX_LINE_CHARACTERS,
) -> Iterator[str]:
    """Yields the lines of a plain or compressed (.gz, .zst) text file in bounded memory, see `decode_lines`.

    Raises:
        DataError: the file is missing, unreadable, a damaged archive, or not UTF-8, or a line is too long.
    """
    with open_bytes(path) as stream:
        yield from decode_lines(bounded_lines(stream, limit), str(path), counts, invalid, remedy, overlong, limit)


def read_running_text(path: Path, invalid: Invalid = "error", limit: int = MAX_PART_BYTES) -> Iterator[str]:
    """Yields the lines of a text file with their line ends; a line of more than `limit` bytes comes in several parts.

    Parts begin with a space where there is one, so that they have the same tokens as the whole.

    Raises:
        DataError: same as `read_lines`.
    """
    counts = LineCounts()
    with open_bytes(path) as stream:
        for raw in _line_parts(stream, limit):
            is_end = raw.endswith(b"\n")
            for line in decode_lines([raw], str(path), counts, invalid):
                yield f"{line}\n" if is_end else line
            counts.lines -= not is_end


def _line_parts(stream: BinaryIO, limit: int) -> Iterator[bytes]:
    """Yields lines up to and including each line feed, which is added to the last one, in parts of at most `limit`."""
    rest = b""
    while raw := rest + stream.readline(limit - len(rest)):
        rest = b""
        if not raw.endswith(b"\n"):
            if len(raw) < limit:  # the end of the file
                yield raw + b"\n"
                return
            space = raw.rfind(b" ", 1)
            end = space if space > 0 else len(whole_characters(raw[:-1]))
            raw, rest = raw[:end], raw[end:]
        yield raw


def check_utf8(text: str, name: str) -> None:
    """Checks that a command-line argument is valid UTF-8.

    Args:
        text: The argument as the operating system passed it.
        name: Name of the argument in the message.

    Raises:
        DataError: the text contains bytes that are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{name} is not UTF-8 (character {error.start + 1}); give it in UTF-8") from error


@contextmanager
def open_bytes(path: Path) -> Generator[BinaryIO]:
    """Opens a plain or compressed (.gz, .zst) file; errors until it is closed are reported with its path.

    Raises:
        DataError: the file is missing, unreadable or a damaged archive.
    """
    with named_read_errors(path):
        if path.suffix in COMPRESSIONS and not path.stat().st_size:
            raise EOFError("it is empty")
        with _open(path) as stream:
            yield stream


@contextmanager
def named_read_errors(path: Path) -> Generator[None]:
    """Reports errors of the operating system and of decompression with the path of the file that is read.

    Raises:
        DataError: the file is missing, unreadable or a damaged archive.
    """
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        reason = "it ends too early" if isinstance(error, EOFError) else "its content is not what was compressed"
        raise DataError(f"{path}: damaged or cut short ({reason}); compress it again") from error
    except OSError as error:
        if path.suffix in COMPRESSIONS and error.errno is None:  # raised by pyarrow
            raise DataError(
                f"{path}: damaged or cut short (its content is not what was compressed); compress it again"
            ) from error
        raise DataError(f"{path}: {os.strerror(error.errno or errno.EIO)}; check the path") from error


def _open(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".zst":
        import pyarrow as pa

        with path.open("rb"):  # the error of pyarrow contains no reason
            return BufferedReader(pa.input_stream(str(path), compression="zstd"), BUFFER_BYTES)
    return path.open("rb")
