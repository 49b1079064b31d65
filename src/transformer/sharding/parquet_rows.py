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


@dataclass(frozen=True)
class ParquetRows:
    """Rows of a Parquet file.

    Attributes:
        path: The file.
        columns: Names of the columns that are read.
    """

    path: Path
    columns: Sequence[str]
    unit: str = "rows"

    @property
    def sequential(self) -> Sequence[Path]:
        """Implements `Source.sequential`."""
        return ()

    def facts(self) -> Any:
        """Implements `Source.facts`."""
        return file_facts(self.path)

    def schema(self) -> "pa.Schema":
        """Returns the types of the columns that are read.

        Raises:
            DataError: The file cannot be read, or has no column of a name.
        """
        import pyarrow as pa

        with open_parquet(self.path) as table:
            schema = table.schema_arrow
        for name in self.columns:
            if name not in schema.names:
                raise DataError(f"{self.path} has no column {name!r}; choose from {', '.join(schema.names)}")
        return pa.schema([schema.field(name) for name in self.columns])

    def divide(self, n_shards: int, done: Progress) -> tuple[Shard, ...]:
        """Divides the row groups into shards with about equal numbers of rows."""
        self.schema()
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

    def read(self, shard: Shard) -> "Iterator[Iterator[pa.RecordBatch]]":
        """Yields the row groups of a shard, each in batches of rows.

        Raises:
            DataError: The file cannot be read.
        """
        with open_parquet(self.path) as table:
            for group in range(*shard.positions):
                yield table.iter_batches(BATCH_ROWS, row_groups=[group], columns=[*self.columns])


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
