"""Blocked gzip files (BGZF, as written by `bgzip`), which can be read from the beginning of any of their blocks.

Positions in such a file are virtual offsets. A virtual offset is the position of a block in the file times 65,536, plus
a position in its uncompressed content. Other programs read the files as any gzip file.

Source: the SAM/BAM format specification, section "The BGZF compression format".
"""

import gzip
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import unpack_from
from typing import BinaryIO, Final, cast

from transformer.text.lines import named_read_errors

OFFSET_BITS: Final = 16
HEADER_BYTES: Final = 12
"""Size of the header of a block up to its extra fields, whose size is at the end."""
FIRST_BYTES: Final = b"\x1f\x8b\x08\x04"
"""Marks of a gzip header with extra fields."""
GZIP: Final = 16 + zlib.MAX_WBITS


def is_blocked(path: Path) -> bool:
    """Whether a file is a blocked gzip file; False if it cannot be read."""
    if path.suffix != ".gz":
        return False
    try:
        with path.open("rb") as file:
            return _block_size(file) is not None
    except OSError:
        return False


def read_blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields the blocks that are not empty, each with the virtual offset of its beginning.

    Raises:
        DataError: The file is damaged.
    """
    with named_read_errors(path), path.open("rb") as file:
        while True:
            start = file.tell()
            size = _block_size(file)
            if size is None:
                if file.seek(start) == start and file.read(1):
                    raise zlib.error("a block without its size")
                return
            file.seek(start)
            block = file.read(size)
            if len(block) < size:
                raise EOFError
            if content := zlib.decompress(block, GZIP):
                yield start << OFFSET_BITS, content


@contextmanager
def open_blocked(path: Path, position: int) -> Generator[BinaryIO]:
    """Opens a file at a virtual offset.

    Raises:
        DataError: The file cannot be read, or is damaged.
    """
    with named_read_errors(path), path.open("rb") as file:
        file.seek(position >> OFFSET_BITS)
        with gzip.GzipFile(fileobj=file) as stream:
            stream.read(position & ((1 << OFFSET_BITS) - 1))
            yield cast(BinaryIO, stream)


def _block_size(file: BinaryIO) -> int | None:
    """Reads the header of a block, and returns the size of the block; None if this is not one."""
    header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES or not header.startswith(FIRST_BYTES):
        return None
    fields = file.read(unpack_from("<H", header, HEADER_BYTES - 2)[0])
    start = 0
    while start + 4 <= len(fields):
        name, size = unpack_from("<2sH", fields, start)
        if name == b"BC" and size == 2 and start + 6 <= len(fields):
            return int(unpack_from("<H", fields, start + 4)[0]) + 1
        start += 4 + size
    return None
