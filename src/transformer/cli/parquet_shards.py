"""Parquet files that commands read with `--shards`, and that their results are written to."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from transformer.cli.fields import takes
from transformer.cli.sharded_lines import DoRows, Reasons, Row, results_of
from transformer.cli.sharding import PANEL, Settings, ShardedCommand, ShardingOptions, Work, work_in_shards
from transformer.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from _typeshed import ReadableBuffer

    from transformer.sharding.job import Job, ShardOutput
    from transformer.sharding.parquet_rows import ParquetRows, ScalarRow
    from transformer.sharding.shards import Shard

SUFFIX: Final = ".parquet"
TEXT_COLUMN: Final = "text"
TRANSLATION_COLUMN: Final = "translation"
REFERENCE_COLUMN: Final = "reference"
BATCH_ROWS: Final = 1024
Values = tuple[Any, ...]
"""Result of a row: values of the columns of a table."""


@dataclass(frozen=True)
class TableColumns:
    """Columns of a Parquet file that is read in shards, as they were given on the command line.

    Attributes:
        text: Column of the texts; None if it was not given.
        ids: Column that is copied, by which results are joined to other tables; None for none.
        translations: Columns of translations.
        references: Columns of reference translations.
    """

    text: str | None = None
    ids: str | None = None
    translations: Sequence[str] = ()
    references: Sequence[str] = ()

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
        self._refuse("with --shards or --engine ray; add one of them")
        return chosen

    def reads_table(self, path: Path | None, sharding: ShardingOptions) -> bool:
        """Whether the input is a table.

        Args:
            path: The input.
            sharding: Options of the command line for shards.

        Raises:
            ConfigError: The input is a table that is not divided into shards, or columns are given for a text.
        """
        is_table = path is not None and path.suffix == SUFFIX
        if is_table and not sharding:
            raise ConfigError(f"{path} is a table, which is read in shards; add --shards 16 and --output FOLDER")
        if not is_table:
            self._refuse("that are read with --shards; leave it out")
        return is_table

    def _refuse(self, files: str) -> None:
        """Refuses all columns, which are for the Parquet files that the words describe."""
        options = {"--text-column": self.text, "--id-column": self.ids, "--translation-column": self.translations,
                 "--reference-column": self.references}  # fmt: skip
        if misplaced := [name for name, value in options.items() if value]:
            raise ConfigError(f"{misplaced[0]} is for Parquet files {files}")

    @property
    def names(self) -> list[str]:
        """Names of the columns that are read, that of the texts first."""
        return [self.text or TEXT_COLUMN, *([self.ids] if self.ids else [])]


def refuse_for_tables(options: Mapping[str, object]) -> None:
    """Refuses options of texts for an input that is a table.

    Args:
        options: Values of the options.

    Raises:
        ConfigError: One of them is set.
    """
    if misplaced := [name for name, value in options.items() if value]:
        raise ConfigError(f"{misplaced[0]} does not go with a table; leave it out")


TextColumnOption = Annotated[
    str | None, typer.Option(help=f"with --shards and a Parquet file: column of the texts; default: {TEXT_COLUMN}")
]
IdColumnOption = Annotated[
    str | None, typer.Option(help="with --shards and a Parquet file: column that is copied beside the results")
]


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
    """Builds the columns of a translation from the command line."""
    return TableColumns(text_column, id_column)


def _result_columns_of(text_column: TextColumnOption = None, id_column: IdColumnOption = None) -> TableColumns:
    return TableColumns(text_column, id_column)


def _text_column_of(text_column: TextColumnOption = None) -> TableColumns:
    return TableColumns(text_column)


def _pair_columns_of(
    text_column: TextColumnOption = None,
    translation_column: Annotated[
        str | None,
        typer.Option(
            help=f"with --shards and a Parquet file: column of the translations; default: {TRANSLATION_COLUMN}"
        ),
    ] = None,
    id_column: IdColumnOption = None,
) -> TableColumns:
    return TableColumns(text_column, id_column, [translation_column] if translation_column else [])


def _test_columns_of(
    text_column: TextColumnOption = None,
    reference_column: Annotated[
        list[str] | None,
        typer.Option(
            help="with --shards and a Parquet file: column of a reference translation; may be repeated; "
            f"default: {REFERENCE_COLUMN}"
        ),
    ] = None,
    translation_column: Annotated[
        list[str] | None,
        typer.Option(help="with --shards and a Parquet file: translations of another system; may be repeated"),
    ] = None,
) -> TableColumns:
    return TableColumns(text_column, None, translation_column or (), reference_column or ())


takes_translation_columns = takes("columns", columns_of, PANEL)
"""Decorator that adds the options of `columns_of`, for the parameter `columns`."""
takes_columns = takes("columns", _result_columns_of, PANEL)
"""Decorator that adds the columns of texts and ids, of commands that Ray does not run."""
takes_text_column = takes("columns", _text_column_of, PANEL)
"""Decorator that adds `--text-column` alone."""
takes_pair_columns = takes("columns", _pair_columns_of, PANEL)
"""Decorator that adds the columns of texts, their translations and ids."""
takes_test_columns = takes("columns", _test_columns_of, PANEL)
"""Decorator that adds the columns of a test set."""


@dataclass(frozen=True)
class TableReader:
    """Reader of the texts of a Parquet file.

    Attributes:
        source: The rows.
        limit: Number of characters of a text that are read.
        on_one_line: Whether line breaks within a text are read as spaces.
    """

    source: "ParquetRows"
    limit: int
    on_one_line: bool = False

    @property
    def paths(self) -> list[Path]:
        """Implements `RowReader.paths`."""
        return [self.source.path]

    def groups(self, shard: "Shard", reasons: Reasons) -> Iterator[Iterator[Row]]:
        """Implements `RowReader.groups`, by row groups."""
        numbers = count(shard.first + 1)
        for group in self.source.groups(shard):
            yield self.rows(group, numbers, reasons)

    def rows(self, rows: "Iterator[ScalarRow]", numbers: Iterator[int], reasons: Reasons) -> Iterator[Row]:
        """Yields rows, without texts where one is missing.

        Args:
            rows: The rows of the file.
            numbers: Their numbers.
            reasons: Reasons that are added for rows that cannot be read.
        """
        from transformer.pipelines.translation.columns import arrow_values, read_text

        for row in rows:
            number = next(numbers)
            read = [read_text(self._on_line(value), self.limit + 1) for value in arrow_values(row)]
            unread = [pair for pair in zip(self.source.texts, read, strict=True) if pair[1][0] is None]
            for name, (_, reason) in unread[:1]:
                reasons[number] = f"{self.source.path}, row {number}: the text of column {name!r} {reason}"
            yield tuple("" if unread or text is None else text for text, _ in read)

    def _on_line(self, value: object) -> object:
        if self.on_one_line and isinstance(value, str):
            return value.replace("\r\n", " ").replace("\n", " ")
        return value


@dataclass(frozen=True)
class TableWork:
    """Work on the rows of a Parquet file, whose results are columns of others.

    Attributes:
        reader: Reader of the rows.
        results: Names and types of the results.
    """

    reader: TableReader
    results: "pa.Schema"

    def run(
        self, sharding: ShardingOptions, folder: Path, name: str, settings: Settings,
        prepare: Callable[[Settings], DoRows[Values]], decide: Callable[[], Settings] = dict,
    ) -> "Job":  # fmt: skip
        """Does shards until all are there, and joins them.

        Args:
            sharding: Options of the command line.
            folder: Folder of the results.
            name: Name of the command.
            settings: What determines the results.
            prepare: Function of the settings of the job that loads the model and returns a function, which does rows.
            decide: Function that returns settings that the first process decides for all.

        Raises:
            ConfigError: The name of the joined file does not end in `.parquet`, or the copied column is named like a
                result.
            TransformerError: The model cannot be loaded, or the folder holds other results or cannot be written.
        """
        rows = self.reader.source
        if sharding.join is not None and sharding.join.suffix != SUFFIX:
            raise ConfigError(f"{sharding.join} does not end in {SUFFIX}; rename it")
        if rows.ids in self.results.names:
            raise ConfigError(f"the results have a column {rows.ids!r} already; rename that of --id-column")
        schema = self._schema()
        command = ShardedCommand(
            name, settings, lambda decided: self._by(prepare(decided), schema), SUFFIX, decide, partial(_join, schema)
        )
        return work_in_shards(sharding, rows, folder, command)

    def _schema(self) -> "pa.Schema":
        import pyarrow as pa

        return pa.schema([*self.reader.source.kept(), *self.results])

    def _by(self, do_rows: DoRows[Values], schema: "pa.Schema") -> Work:
        """Returns a function that does a shard by doing its rows; one that cannot be read has no values."""
        import pyarrow as pa
        import pyarrow.parquet as parquet

        nothing = (None,) * len(self.results)

        def batches(group: Iterator[tuple[int, Values, bool]]) -> "Iterator[pa.RecordBatch]":
            while rows := [values if is_readable else nothing for _, values, is_readable in islice(group, BATCH_ROWS)]:
                columns = zip(zip(*rows, strict=True), self.results.types, strict=True)
                yield pa.RecordBatch.from_arrays([pa.array(*column) for column in columns], schema=self.results)

        def work(shard: "Shard", output: "ShardOutput") -> None:
            copied = self.reader.source.copied(shard)
            with parquet.ParquetWriter(_Sink(output), schema) as writer:
                for group in results_of(self.reader, shard, do_rows, output.rejected):
                    results = pa.Table.from_batches(batches(group), self.results)
                    _write_group(writer, pa.Table.from_arrays([*next(copied), *results.columns], schema=schema))

        return work


class _Sink(io.RawIOBase):
    """The result of a shard, as a file for pyarrow."""

    def __init__(self, output: "ShardOutput") -> None:
        super().__init__()
        self._output = output

    def writable(self) -> bool:
        return True

    def write(self, data: "ReadableBuffer", /) -> int:
        content = bytes(data)
        self._output.write(content)
        return len(content)


def _join(schema: "pa.Schema", job: "Job", file: BinaryIO) -> None:
    """Writes all results as one Parquet file, with the row groups of the input."""
    import pyarrow.parquet as parquet

    from transformer.sharding.parquet_rows import open_parquet

    for shard in job.shards:
        job.verify(shard)
    with parquet.ParquetWriter(file, schema) as writer:
        for shard in job.shards:
            with open_parquet(job.part(shard.index)) as part:
                for group in range(part.num_row_groups):
                    _write_group(writer, part.read_row_group(group))


def _write_group(writer: Any, table: "pa.Table") -> None:
    """Writes a table as one row group, so that a joined file does not depend on the shards."""
    if table.num_rows:
        writer.write_table(table, row_group_size=table.num_rows)
