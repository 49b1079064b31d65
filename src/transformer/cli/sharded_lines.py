"""Lines of text files that commands do in shards."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformer.cli.sharding import Work
from transformer.errors import DataError

if TYPE_CHECKING:
    from transformer.sharding.job import ShardOutput
    from transformer.sharding.lines import TextFiles
    from transformer.sharding.shards import Shard
    from transformer.text.lines import Invalid

Row = tuple[str, ...]
"""Lines that belong together, one of each file."""


@dataclass(frozen=True)
class Result:
    """Result of a row.

    Attributes:
        content: What is written.
        reason: Why the row could not be done; empty if it was.
    """

    content: bytes
    reason: str = ""


DoRows = Callable[[int, Iterator[Row]], Iterator[Result]]
"""Function of the number of rows before some rows, and of these rows, that yields the result of each, in order."""


@dataclass(frozen=True)
class LineWork:
    """Work on the lines of text files.

    Attributes:
        files: The files.
        limit: Number of characters of a line that are read.
        invalid: Handling of bytes that are not UTF-8; "error" sets the row apart.
        unreadable: Function of the number of a row, from 1, that returns the result of one that cannot be read. Without
            it, this is the result of an empty line.
    """

    files: "TextFiles"
    limit: int
    invalid: "Invalid"
    unreadable: Callable[[int], bytes] | None = None

    def by(self, do_rows: DoRows) -> Work:
        """Returns a function that does a shard by doing its rows; instead of a line that cannot be read, it is empty.

        Args:
            do_rows: Function that does rows.
        """

        def work(shard: "Shard", output: "ShardOutput") -> None:
            reasons: dict[int, str] = {}
            number = shard.first
            for result in do_rows(shard.first, self._rows(shard, reasons)):
                number += 1
                content, reason = result.content, reasons.pop(number, "")
                if reason and self.unreadable is not None:
                    content = self.unreadable(number)
                if reason := reason or result.reason:
                    output.rejected.append((number, reason))
                output.write(content)
            if number != shard.first + shard.n_items:
                names = " or ".join(str(path) for path in self.files.paths)
                raise DataError(f"{names} has changed since it was divided; remove the folder of the results")

        return work

    def _rows(self, shard: "Shard", reasons: dict[int, str]) -> Iterator[Row]:
        """Yields the rows of a shard, and notes why one cannot be read."""
        for number, lines in enumerate(self.files.read(shard, self.limit), start=shard.first + 1):
            texts = [self._decode(line, column, number, reasons) for column, line in enumerate(lines)]
            yield tuple(texts)

    def _decode(self, line: bytes, column: int, number: int, reasons: dict[int, str]) -> str:
        from transformer.text.lines import LineCounts, decode_lines

        name, counts = str(self.files.paths[column]), LineCounts(number - 1)
        try:
            (text,) = decode_lines([line], name, counts, self.invalid, remedy="", overlong="cut", limit=self.limit)
        except DataError as error:
            reasons.setdefault(number, str(error))
            return ""
        return text
