"""Rows of texts that commands do in shards: lines of text files, or rows of tables."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from transformer.cli.sharding import Work
from transformer.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from transformer.sharding.job import ShardOutput
    from transformer.sharding.lines import TextFiles
    from transformer.sharding.shards import Shard, Source
    from transformer.text.lines import Invalid

Row = tuple[str, ...]
"""Texts that belong together: lines, one of each file, or fields of a row of a table."""
Reasons = dict[int, str]
"""Why rows cannot be read, by their number from 1."""
Content = TypeVar("Content")


@dataclass(frozen=True)
class Result(Generic[Content]):
    """Result of a row.

    Attributes:
        content: What is written: bytes, or the values of the columns of a table.
        reason: Why the row could not be done; empty if it was.
    """

    content: Content
    reason: str = ""


DoRows = Callable[[int, Iterator[Row]], Iterator[Result[Content]]]
"""Function of the number of rows before some rows, and of these rows, that yields the result of each, in order."""


class RowReader(Protocol):
    """Reader of the rows of an input."""

    @property
    def source(self) -> "Source":
        """The input."""
        ...

    @property
    def paths(self) -> "list[Path]":
        """Its files."""
        ...

    def groups(self, shard: "Shard", reasons: Reasons) -> Iterator[Iterator[Row]]:
        """Yields the rows of a shard, in groups that are done one by one whatever the number of shards.

        Args:
            shard: The shard.
            reasons: Reasons that are added before a row is yielded that cannot be read, whose texts are empty.
        """
        ...


def results_of(
    reader: RowReader, shard: "Shard", do_rows: DoRows[Content], rejected: list[tuple[int, str]]
) -> Iterator[Iterator[tuple[int, Content, bool]]]:
    """Yields the groups of a shard, of which each yields the results of its rows.

    A result comes with the number of its row, from 1, and whether the row could be read.

    Args:
        reader: Reader of the rows.
        shard: The shard.
        do_rows: Function that does rows.
        rejected: Numbers of rows that could not be done, and reasons, which are added.

    Raises:
        DataError: The shard has fewer rows than when the input was divided.
    """
    reasons: Reasons = {}
    number = shard.first

    def done(rows: Iterator[Row]) -> Iterator[tuple[int, Content, bool]]:
        nonlocal number
        for result in do_rows(number, rows):
            number += 1
            unreadable = reasons.pop(number, "")
            if reason := unreadable or result.reason:
                rejected.append((number, reason))
            yield number, result.content, not unreadable

    for rows in reader.groups(shard, reasons):
        yield done(rows)
    if number != shard.first + shard.n_items:
        names = " or ".join(str(path) for path in reader.paths)
        raise DataError(f"{names} has changed since it was divided; remove the folder of the results")


@dataclass(frozen=True)
class LineReader:
    """Reader of the lines of text files.

    Attributes:
        source: The files.
        limit: Number of characters of a line that are read.
        invalid: Handling of bytes that are not UTF-8; "error" sets the row apart.
    """

    source: "TextFiles"
    limit: int
    invalid: "Invalid"

    @property
    def paths(self) -> "list[Path]":
        """Implements `RowReader.paths`."""
        return [*self.source.paths]

    def groups(self, shard: "Shard", reasons: Reasons) -> Iterator[Iterator[Row]]:
        """Implements `RowReader.groups`: a single group, since shards begin where blocks of lines do."""
        yield self._rows(shard, reasons)

    def _rows(self, shard: "Shard", reasons: Reasons) -> Iterator[Row]:
        for number, lines in enumerate(self.source.read(shard, self.limit), start=shard.first + 1):
            texts = [self._decode(line, column, number, reasons) for column, line in enumerate(lines)]
            yield tuple(texts)

    def _decode(self, line: bytes, column: int, number: int, reasons: Reasons) -> str:
        from transformer.text.lines import LineCounts, decode_lines

        name, counts = str(self.paths[column]), LineCounts(number - 1)
        try:
            (text,) = decode_lines([line], name, counts, self.invalid, remedy="", overlong="cut", limit=self.limit)
        except DataError as error:
            reasons.setdefault(number, str(error))
            return ""
        return text


@dataclass(frozen=True)
class LineWork:
    """Work on rows whose results are lines.

    Attributes:
        reader: Reader of the rows.
        unreadable: Function of the number of a row, from 1, that returns the result of one that cannot be read. Without
            it, this is the result of an empty line.
    """

    reader: RowReader
    unreadable: Callable[[int], bytes] | None = None

    def by(self, do_rows: DoRows[bytes]) -> Work:
        """Returns a function that does a shard by doing its rows; instead of a line that cannot be read, it is empty.

        Args:
            do_rows: Function that does rows.
        """

        def work(shard: "Shard", output: "ShardOutput") -> None:
            for group in results_of(self.reader, shard, do_rows, output.rejected):
                for number, content, is_readable in group:
                    unreadable = None if is_readable else self.unreadable
                    output.write(content if unreadable is None else unreadable(number))

        return work
