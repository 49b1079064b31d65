"""Shards of a Parquet file: whole row groups."""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from transformer.errors import DataError
from transformer.sharding.lines import file_facts
from transformer.sharding.shards import Progress, Shard

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as parquet

BATCH_ROWS: Final = 1024
ScalarRow = tuple[Any, ...]
"""Values of a row as Arrow has them, one of each column of texts."""


@dataclass(frozen=True)
class ParquetRows:
    """Rows of a Parquet file.

    Attributes:
        path: The file.
        texts: Names of the columns of texts; a dot selects a field of a column.
        ids: Name of a column that is copied beside the results; None for none.
    """

    path: Path
    texts: Sequence[str]
    ids: str | None = None
    unit: str = "rows"

    @property
    def sequential(self) -> Sequence[Path]:
        """Implements `Source.sequential`."""
        return ()

    def facts(self) -> Any:
        """Implements `Source.facts`."""
        return {**file_facts(self.path), "columns": [*self.texts, self.ids]}

    def kept(self) -> "list[pa.Field]":
        """Returns the column that is copied, after a check of all columns that are read.

        Raises:
            DataError: The file cannot be read, has no column of a name, or has no texts in a column.
        """
        with open_parquet(self.path) as table:
            schema = table.schema_arrow
        for name in self.texts:
            _check_texts(self.path, name, _nested_field(schema, name) or self._missing(schema, name))
        if self.ids is None:
            return []
        return [schema.field(self.ids) if self.ids in schema.names else self._missing(schema, self.ids)]

    def divide(self, n_shards: int, done: Progress) -> tuple[Shard, ...]:
        """Divides the row groups into shards with about equal numbers of rows."""
        self.kept()
        with open_parquet(self.path) as table:
            sizes = [table.metadata.row_group(group).num_rows for group in range(table.metadata.num_row_groups)]
        starts = [sum(sizes[:group]) for group in range(len(sizes))]
        shards: list[Shard] = []
        for _, members in groupby(range(len(sizes)), lambda group: starts[group] * n_shards // max(1, sum(sizes))):
            groups = [*members]
            if n_rows := sum(sizes[group] for group in groups):
                shards.append(Shard(len(shards), starts[groups[0]], n_rows, (groups[0], groups[-1] + 1)))
        done(self.path.stat().st_size)
        return tuple(shards)

    def groups(self, shard: Shard) -> Iterator[Iterator[ScalarRow]]:
        """Yields the texts of each row group of a shard.

        Raises:
            DataError: The file cannot be read.
        """
        with open_parquet(self.path) as table:
            for group in range(*shard.positions):
                yield self._rows(table, [group])

    def copied(self, shard: Shard) -> "Iterator[list[pa.ChunkedArray]]":
        """Yields the column that is copied, of each row group of a shard; an empty list if there is none."""
        with open_parquet(self.path) as table:
            for group in range(*shard.positions):
                yield [] if self.ids is None else table.read_row_group(group, [self.ids]).columns

    def all(self) -> Iterator[ScalarRow]:
        """Yields the texts of all rows."""
        self.kept()
        with open_parquet(self.path) as table:
            yield from self._rows(table, [*range(table.num_row_groups)])

    def _rows(self, table: "parquet.ParquetFile", groups: list[int]) -> Iterator[ScalarRow]:
        for batch in table.iter_batches(BATCH_ROWS, groups, [*self.texts]):
            yield from zip(*(_nested_column(batch, name) for name in self.texts), strict=True)

    def _missing(self, schema: "pa.Schema", name: str) -> "pa.Field":
        raise DataError(f"{self.path} has no column {name!r}; choose from {', '.join(schema.names)}")


def _nested_field(schema: "pa.Schema", name: str) -> "pa.Field | None":
    """Returns a column of a schema, or a field of one; None if it is not there."""
    import pyarrow as pa

    if name in schema.names:
        return schema.field(name)
    first, *nested = name.split(".")
    column = schema.field(first) if first in schema.names else None
    for part in nested:
        is_there = column is not None and pa.types.is_struct(column.type) and column.type.get_field_index(part) >= 0
        column = column.type.field(part) if column is not None and is_there else None
    return column


def _nested_column(batch: "pa.RecordBatch", name: str) -> "pa.Array":
    if name in batch.schema.names:
        return batch.column(name)
    first, *nested = name.split(".")
    column: Any = batch.column(first)
    for part in nested:
        column = column.flatten()[column.type.get_field_index(part)]  # which keeps the nulls of the outer column
    return column


def _check_texts(path: Path, name: str, column: "pa.Field") -> None:
    """Checks that a column has texts.

    Raises:
        DataError: It has not.
    """
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(f"{path}: column {name!r} holds {column.type}, not texts; name another one")


@contextmanager
def open_parquet(path: Path) -> "Generator[parquet.ParquetFile]":
    """Opens a Parquet file; errors until it is closed are reported with its path.

    Raises:
        DataError: The file is missing, unreadable, damaged or of another format.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        with path.open("rb") as file, parquet.ParquetFile(file) as table:
            yield table
    except pa.ArrowException as error:
        raise DataError(f"{path}: not a Parquet file, damaged or cut short; write it again") from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "damaged or cut short"
        raise DataError(f"{path}: {reason}; check the file") from error
