"""`transformer translate --input FILE.parquet --shards`: a column of texts translated by any number of processes."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from transformer.cli.fields import takes
from transformer.cli.sharding import PANEL, Settings, ShardedCommand, ShardingOptions, Work, work_in_shards
from transformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from transformer.pipelines.translation.translator import Translator
    from transformer.sharding.job import Job, ShardOutput
    from transformer.sharding.shards import Shard

SUFFIX: Final = ".parquet"
TEXT_COLUMN: Final = "text"


@dataclass(frozen=True)
class TableColumns:
    """Columns of a Parquet file that is translated in shards.

    Attributes:
        text: Column of the texts; None if it was not given.
        ids: Column that is copied, by which results are joined to other tables; None for none.
    """

    text: str | None = None
    ids: str | None = None

    def kind(self, path: Path | None, chosen: str, *, in_shards: bool) -> str:
        """Returns the format of the input: "text" for a table in shards, whose texts are lines.

        Args:
            path: The input.
            chosen: Value of `--as`.
            in_shards: Whether the input is divided into shards.

        Raises:
            ConfigError: Columns are given, but the input is not a table in shards.
        """
        if in_shards and path is not None and path.suffix == SUFFIX:
            return "text"
        for name, value in {"--text-column": self.text, "--id-column": self.ids}.items():
            if value:
                raise ConfigError(f"{name} is for Parquet files with --shards or --engine ray; add one of them")
        return chosen

    @property
    def names(self) -> list[str]:
        """Names of the columns that are read, that of the texts first."""
        return [self.text or TEXT_COLUMN, *([self.ids] if self.ids else [])]


def columns_of(
    text_column: Annotated[
        str | None,
        typer.Option(
            help=f"of Parquet files, with --shards or --engine ray: column of the texts; default: {TEXT_COLUMN}"
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            help="of Parquet files: with --shards, column that is copied beside the translations; with --engine ray, "
            "column of unique values, by which a job is continued"
        ),
    ] = None,
) -> TableColumns:
    """Builds the columns from the command line."""
    return TableColumns(text_column, id_column)


takes_columns = takes("columns", columns_of, PANEL)
"""Decorator that adds the options of `columns_of`, for the parameter `columns`."""


def translate_table(
    sharding: ShardingOptions,
    path: Path,
    folder: Path,
    columns: TableColumns,
    command: "tuple[Settings, Callable[[], Settings], Callable[[Settings], Translator]]",
    limit: int,
) -> None:
    """Translates a column in shards, to Parquet files with the columns `translation` and `confidence`.

    Args:
        sharding: Options of the command line.
        path: The Parquet file.
        folder: Folder of the results.
        columns: The columns.
        command: What determines the translations, the settings that the first process decides, and a function of all
            settings that loads the translator.
        limit: Number of characters of a text that are read.

    Raises:
        ConfigError: The name of the joined file does not end in `.parquet`.
        TransformerError: The model cannot be loaded, or the folder holds other results or cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from transformer.pipelines.translation.columns import translate_texts
    from transformer.sharding.parquet_rows import ParquetRows, open_parquet

    if sharding.join is not None and sharding.join.suffix != SUFFIX:
        raise ConfigError(f"{sharding.join} does not end in {SUFFIX}; rename it")
    determined, decide, load = command
    rows = ParquetRows(path, columns.names)
    kept = [*rows.schema()][1:]
    check_texts(path, rows.schema().field(0))
    schema = pa.schema([*kept, ("translation", pa.string()), ("confidence", pa.float64())])

    def prepare(settings: Settings) -> Work:
        translator = load(settings)

        def work(shard: "Shard", output: "ShardOutput") -> None:
            number, written = shard.first, io.BytesIO()
            with parquet.ParquetWriter(written, schema) as writer:
                for group in rows.read(shard):
                    batches: list[pa.RecordBatch] = []
                    for batch in group:
                        texts = _texts(batch.column(0), number, str(path), output.rejected, limit)
                        results = translate_texts(translator, texts, number)
                        copied = [batch.column(1)] if columns.ids else []
                        arrays = [*copied, *map(pa.array, zip(*results, strict=True), schema.types[len(copied) :])]
                        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
                        number += batch.num_rows
                    _write_group(writer, pa.Table.from_batches(batches, schema))
            output.write(written.getvalue())

        return work

    def join(job: "Job", file: BinaryIO) -> None:
        for _ in job.results():  # verifies them
            pass
        with parquet.ParquetWriter(file, schema) as writer:
            for shard in job.shards:
                with open_parquet(job.part(shard.index)) as part:
                    for group in range(part.num_row_groups):
                        _write_group(writer, part.read_row_group(group))

    settings = {**determined, "columns": repr(columns)}
    work_in_shards(sharding, rows, folder, ShardedCommand("translate", settings, prepare, SUFFIX, decide, join))


def check_texts(path: Path, column: "pa.Field") -> None:
    """Checks that a column has texts.

    Raises:
        DataError: It has not.
    """
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(
            f"{path}: column {column.name!r} holds {column.type}, not texts; name another one with --text-column"
        )


def _write_group(writer: Any, table: "pa.Table") -> None:
    """Writes a table as one row group, so that a joined file does not depend on the shards."""
    if table.num_rows:
        writer.write_table(table, row_group_size=table.num_rows)


def _texts(
    column: "pa.Array", n_before: int, name: str, rejected: list[tuple[int, str]], limit: int
) -> list[str | None]:
    """Returns the texts of a column; None, whose reason is noted, for what is none."""
    from transformer.pipelines.translation.columns import arrow_values, read_text

    texts: list[str | None] = []
    for number, value in enumerate(arrow_values(column), start=n_before + 1):
        text, reason = read_text(value, limit)
        if text is None:
            rejected.append((number, f"{name}, row {number}: the text {reason}"))
        texts.append(text)
    return texts
