"""Shards of a text file: consecutive lines, found in one pass."""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from transformer.text.lines import bounded_lines, open_bytes

MAX_BLOCK_BYTES: Final = 1 << 16
"""Distance at which the starts of lines are noted; it bounds how unequal shards are."""
BLOCKS_PER_SHARD: Final = 16
MAX_BLOCKS: Final = 1 << 20
SKIP_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Shard:
    """Consecutive lines of a file.

    Attributes:
        index: Number of the shard, from 0.
        first_byte: Position of its first line, in the uncompressed file.
        first_line: Number of the lines before it.
        n_lines: Number of its lines.
    """

    index: int
    first_byte: int
    first_line: int
    n_lines: int


@dataclass(frozen=True)
class LineIndex:
    """The content of a file and its shards.

    Attributes:
        n_bytes: Size of the uncompressed file.
        sha256: Checksum of the uncompressed file.
        shards: The shards, at most as many as were asked for; none of them is empty.
    """

    n_bytes: int
    sha256: str
    shards: tuple[Shard, ...]


def index_file(path: Path, n_shards: int, done: Callable[[int], None] = lambda n_bytes: None) -> LineIndex:
    """Reads a file once and divides it into shards of about equal size.

    Args:
        path: Text file, plain or compressed.
        n_shards: Number of shards, if there are enough lines.
        done: Callback for progress, called with the number of bytes read since the last call.

    Raises:
        DataError: The file cannot be read.
    """
    on_disk = path.stat().st_size if path.exists() else 0
    block = min(MAX_BLOCK_BYTES, max(1, on_disk // (BLOCKS_PER_SHARD * n_shards)))
    block = max(block, on_disk // MAX_BLOCKS)
    starts, digest, position, line, last = [(0, 0)], hashlib.sha256(), 0, 0, b""
    with open_bytes(path) as stream:
        while content := stream.read(block):
            digest.update(content)
            done(len(content))
            if (end := content.find(b"\n")) >= 0:
                starts.append((position + end + 1, line + 1))
            line += content.count(b"\n")
            position += len(content)
            last = content[-1:]
    n_lines = line + (last not in (b"", b"\n"))
    return LineIndex(position, digest.hexdigest(), _shards(starts, position, n_lines, n_shards))


def _shards(starts: list[tuple[int, int]], n_bytes: int, n_lines: int, n_shards: int) -> tuple[Shard, ...]:
    """Chooses the noted line starts at which shards begin."""
    if not n_lines:
        return ()
    targets = (n_bytes * number // n_shards for number in range(n_shards))
    chosen = dict.fromkeys(bisect_left(starts, (target, 0)) for target in targets)
    first = [starts[number] for number in chosen if number < len(starts) and starts[number][1] < n_lines]
    ends = [line for _, line in first[1:]] + [n_lines]
    return tuple(
        Shard(index, byte, line, end - line) for index, ((byte, line), end) in enumerate(zip(first, ends, strict=True))
    )


def read_shard(path: Path, shard: Shard, limit: int) -> Iterator[bytes]:
    r"""Yields the lines of a shard up to and including each `\n`, in bounded memory.

    A plain file is read from the shard on. A compressed file is read from its beginning, because the
    positions of its lines are not known; that takes far less time than work on the lines does.

    Args:
        path: The file.
        shard: The shard.
        limit: Number of characters of a line that are kept as they are.

    Raises:
        DataError: The file cannot be read.
    """
    with open_bytes(path) as stream:
        _skip(stream, shard.first_byte)
        yield from islice(bounded_lines(stream, limit), shard.n_lines)


def _skip(stream: BinaryIO, n_bytes: int) -> None:
    if stream.seekable():
        stream.seek(n_bytes)
        return
    while n_bytes and (content := stream.read(min(n_bytes, SKIP_BYTES))):
        n_bytes -= len(content)
