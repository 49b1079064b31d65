"""Shards of text files: consecutive lines, found in one pass."""

import gzip
import hashlib
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from transformer.errors import DataError, counted
from transformer.sharding.blocked_gzip import is_blocked, open_blocked, read_blocks
from transformer.sharding.shards import Progress, Shard, no_progress
from transformer.text.lines import COMPRESSIONS, bounded_lines, open_bytes

MAX_BLOCK_BYTES: Final = 1 << 16
"""Distance at which the starts of lines are noted; it bounds how unequal shards are."""
BLOCKS_PER_SHARD: Final = 16
MAX_BLOCKS: Final = 1 << 20
SKIP_BYTES: Final = 1 << 20
EDGE_BYTES: Final = 1 << 16
"""Number of bytes at both ends of the input whose checksum every worker compares."""


@dataclass(frozen=True)
class LineStart:
    """Start of a line.

    Attributes:
        line: Number of the lines before it.
        n_bytes: Size of the lines before it, uncompressed.
        position: Where to open the file, see `open_at`.
    """

    line: int
    n_bytes: int
    position: int


class TextFiles:
    """Text files whose lines belong together, plain or compressed; the first one decides where shards begin.

    Args:
        paths: The files, with equal numbers of lines.
        block_lines: Number of lines that are worked on together. Shards begin at multiples of it, so that the blocks
            are the same for any number of shards.
    """

    unit = "lines"

    def __init__(self, paths: Sequence[Path], block_lines: int = 1) -> None:
        self.paths, self.block_lines = tuple(paths), block_lines

    def facts(self) -> list[Any]:
        """Returns size and a checksum of both ends of each file."""
        return [file_facts(path) for path in self.paths]

    def divide(self, n_shards: int, done: Progress = no_progress) -> tuple[Shard, ...]:
        """Reads all files once and divides them into shards of about equal size.

        Args:
            n_shards: Number of shards, if there are enough lines.
            done: Callback for progress, called with the number of bytes read since the last call.

        Raises:
            DataError: A file cannot be read, or has another number of lines than the first one.
        """
        path, *others = self.paths
        starts, n_bytes, n_lines = index_lines(path, n_shards, self.block_lines, done)
        chosen = _choose(starts, n_bytes, n_lines, n_shards)
        lines = [start.line for start in chosen]
        positions = [[start.position for start in chosen]]
        for other in others:
            other_positions, n_others = find_lines(other, lines, done)
            if n_others != n_lines:
                raise DataError(
                    f"{path} has {counted(n_lines, 'line')}, but {other} has {n_others:,}; "
                    "give files that agree line by line"
                )
            positions.append(other_positions)
        ends = [*lines, n_lines][1:]
        return tuple(
            Shard(index, first, end - first, tuple(places))
            for index, (first, end, *places) in enumerate(zip(lines, ends, *positions, strict=True))
        )

    def read(self, shard: Shard, limit: int) -> Iterator[tuple[bytes, ...]]:
        r"""Yields the lines of a shard, one of each file, up to and including each `\n`, in bounded memory.

        Args:
            shard: The shard.
            limit: Number of characters of a line that are kept as they are.

        Raises:
            DataError: A file cannot be read.
        """
        files = zip(self.paths, shard.positions, strict=True)
        yield from zip(*(read_lines_at(path, at, shard.n_items, limit) for path, at in files), strict=False)

    @property
    def sequential(self) -> list[Path]:
        """The files that can be read from their beginning alone."""
        return [path for path in self.paths if path.suffix in COMPRESSIONS and not is_blocked(path)]


def file_facts(path: Path) -> dict[str, Any]:
    """Returns the size of a file and a checksum of both ends, which tells apart files of the same size."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(EDGE_BYTES)
        file.seek(max(0, size - EDGE_BYTES))
        return {"size": size, "edges": hashlib.sha256(start + file.read()).hexdigest()}


def index_lines(
    path: Path, n_shards: int, block_lines: int = 1, done: Progress = no_progress
) -> tuple[list[LineStart], int, int]:
    """Reads a file once and notes starts of lines, closer than shards will begin.

    Returns:
        Starts of lines whose numbers are multiples of `block_lines`; the numbers of uncompressed bytes, and of lines.

    Args:
        path: Text file, plain or compressed.
        n_shards: Number of shards.
        block_lines: Number of lines that belong together.
        done: Callback for progress, called with the number of bytes read since the last call.

    Raises:
        DataError: The file cannot be read.
    """
    on_disk = path.stat().st_size if path.exists() else 0
    size = min(MAX_BLOCK_BYTES, max(1, on_disk // (BLOCKS_PER_SHARD * n_shards)))
    size = max(size, on_disk // MAX_BLOCKS)
    return _scan(path, size, lambda end: (end // block_lines + 1) * block_lines, done)


def find_lines(path: Path, lines: Sequence[int], done: Progress = no_progress) -> tuple[list[int], int]:
    """Returns the positions of some lines of a file, for `open_at`, and the number of all its lines.

    Args:
        path: Text file, plain or compressed.
        lines: Numbers of the lines before them, in order.
        done: Callback for progress, called with the number of bytes read since the last call.
    """
    wanted = iter(lines[1:])
    starts, _, n_lines = _scan(path, MAX_BLOCK_BYTES, lambda end: next(wanted, None), done, all_in_chunk=True)
    return [start.position for start in starts[: len(lines)]], n_lines


def _scan(
    path: Path, size: int, following: Callable[[int], int | None], done: Progress, *, all_in_chunk: bool = False
) -> tuple[list[LineStart], int, int]:
    """Reads a file once and notes the starts of some lines, the first one included.

    Args:
        path: The file.
        size: Number of bytes that are read at a time.
        following: Function that is given a number of lines, and returns the next line to note; None if there is none.
        done: Callback for progress.
        all_in_chunk: Whether several lines of what is read at a time are noted; otherwise one.
    """
    starts, n_bytes, line, last = [LineStart(0, 0, 0)], 0, 0, b""
    wanted, is_next = following(0), False
    for address, content in _chunks(path, size):
        done(len(content))
        if is_next:  # the last chunk ended with its line
            starts.append(LineStart(line, n_bytes, address))
            wanted, is_next = following(line), False
        count = content.count(b"\n")
        while wanted is not None and wanted <= line + count:
            end = _after_newline(content, wanted - line, count)
            if end == len(content):
                is_next = True
                break
            starts.append(LineStart(wanted, n_bytes + end, address + end))
            wanted = following(wanted if all_in_chunk else line + count)
        line, n_bytes, last = line + count, n_bytes + len(content), content[-1:]
    return starts, n_bytes, line + (last not in (b"", b"\n"))


def _after_newline(content: bytes, number: int, count: int) -> int:
    """Returns the position behind the newline of a number, from 1, of `count`."""
    if number == 1:
        return content.find(b"\n") + 1
    if number == count:
        return content.rfind(b"\n") + 1
    return int(np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))[number - 1]) + 1


def _chunks(path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    """Yields the content of a file in pieces, each with its position for `open_at`."""
    if is_blocked(path):
        yield from read_blocks(path)
        return
    position = 0
    with open_bytes(path) as stream:
        while content := stream.read(size):
            yield position, content
            position += len(content)


def _choose(starts: Sequence[LineStart], n_bytes: int, n_lines: int, n_shards: int) -> list[LineStart]:
    """Returns the noted line starts at which shards begin."""
    targets = (n_bytes * number // n_shards for number in range(n_shards))
    chosen = dict.fromkeys(bisect_left(starts, target, key=lambda start: start.n_bytes) for target in targets)
    return [starts[number] for number in chosen if number < len(starts) and starts[number].line < n_lines]


def read_lines_at(path: Path, position: int, n_lines: int, limit: int) -> Iterator[bytes]:
    r"""Yields lines up to and including each `\n`, from a position on."""
    with open_at(path, position) as stream:
        yield from islice(bounded_lines(stream, limit), n_lines)


@contextmanager
def open_at(path: Path, position: int) -> Generator[BinaryIO]:
    """Opens a file at a position.

    A plain file is read from there on, and so is a blocked gzip file, whose positions are those of
    `transformer.sharding.blocked_gzip`. Another compressed file is read from its beginning, because the
    positions of its lines are not known; that takes far less time than work on the lines does.

    Raises:
        DataError: The file cannot be read.
    """
    if is_blocked(path):
        with open_blocked(path, position) as stream:
            yield stream
        return
    with open_bytes(path) as stream:
        if stream.seekable() and not isinstance(stream, gzip.GzipFile):
            stream.seek(position)
        else:
            while position and (content := stream.read(min(position, SKIP_BYTES))):
                position -= len(content)
        yield stream
