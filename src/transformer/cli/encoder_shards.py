"""`transformer embed --shards` and `transformer classify --shards`: texts encoded by any number of processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from transformer.cli.parquet_shards import TEXT_COLUMN, TableColumns, TableReader, TableWork, Values
from transformer.cli.sharded_lines import Content, DoRows, LineReader, LineWork, Result, Row
from transformer.cli.sharding import (
    Settings,
    ShardedCommand,
    ShardingOptions,
    Work,
    model_identity,
    work_in_shards,
)
from transformer.cli.verbosity import say
from transformer.errors import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from transformer.pipelines.classification import TextEncoder
    from transformer.sharding.job import Job
    from transformer.text.lines import Invalid


@dataclass(frozen=True)
class LineForm:
    """Results of an encoder as lines.

    Attributes:
        invalid: Handling of bytes that are not UTF-8; "error" sets the line apart.
        encode: Function of the encoder and a chunk that returns the results of its lines.
        unreadable: Function of the encoder that returns the result of a line that cannot be read.
        suffix: End of the names of the results.
        write_joined: Function that writes all results to the joined file; None writes them one after another.
    """

    invalid: "Invalid"
    encode: "Callable[[TextEncoder, Sequence[str]], Iterable[bytes]]"
    unreadable: "Callable[[TextEncoder], bytes]"
    suffix: str = ".txt"
    write_joined: "Callable[[Job, BinaryIO], None] | None" = None


@dataclass(frozen=True)
class TableForm:
    """Results of an encoder as columns of a table.

    Attributes:
        columns: Columns of the input.
        encode: Function of the encoder and a chunk that returns the values of its rows.
        results: Names and types of the values.
    """

    columns: TableColumns
    encode: "Callable[[TextEncoder, Sequence[str]], Iterable[Values]]"
    results: "pa.Schema"


@dataclass(frozen=True)
class ShardedEncoding:
    """Texts that an encoder reads in shards.

    Attributes:
        name: Name of the command.
        model: Path or name of the model.
        options: What else determines the results.
        load: Function that loads the encoder.
        chunk: Number of texts that are sorted by length together.
        loaded: The encoders that were loaded.
    """

    name: str
    model: Path
    options: object
    load: "Callable[[], TextEncoder]"
    chunk: int
    loaded: "list[TextEncoder]" = field(default_factory=list[Any])

    def run(self, sharding: ShardingOptions, path: Path, folder: Path, form: LineForm | TableForm) -> None:
        """Encodes shards until all are there.

        Args:
            sharding: Options of the command line.
            path: The input file.
            folder: Folder of the results.
            form: Form of the results.

        Raises:
            TransformerError: The model cannot be loaded, or the folder holds other results or cannot be written.
        """
        if isinstance(form, TableForm):
            self._encode_table(sharding, path, folder, form)
        else:
            self._encode_lines(sharding, path, folder, form)
        for encoder in self.loaded:
            report_truncated(encoder)

    def _encode_lines(self, sharding: ShardingOptions, path: Path, folder: Path, form: LineForm) -> None:
        from transformer.sharding.lines import TextFiles
        from transformer.text.lines import MAX_LINE_CHARACTERS

        files = TextFiles([path], self.chunk)
        reader = LineReader(files, MAX_LINE_CHARACTERS, form.invalid)

        def prepare(decided: Settings) -> Work:
            del decided
            encoder = self._load()
            unreadable = form.unreadable(encoder)
            return LineWork(reader, lambda number: unreadable).by(self._rows(encoder, form.encode))

        settings = self._settings(form.invalid)
        command = ShardedCommand(self.name, settings, prepare, form.suffix, write_joined=form.write_joined)
        work_in_shards(sharding, files, folder, command)

    def _encode_table(self, sharding: ShardingOptions, path: Path, folder: Path, form: TableForm) -> None:
        from transformer.sharding.parquet_rows import ParquetRows
        from transformer.text.lines import MAX_LINE_CHARACTERS

        rows = ParquetRows(path, [form.columns.text or TEXT_COLUMN], form.columns.ids)
        table = TableWork(TableReader(rows, MAX_LINE_CHARACTERS), form.results)
        table.run(
            sharding, folder, self.name, self._settings(None), lambda decided: self._rows(self._load(), form.encode)
        )

    def _settings(self, invalid: "Invalid | None") -> Settings:
        return {"model": model_identity(self.model), "options": repr((self.options, invalid))}

    def _load(self) -> "TextEncoder":
        self.loaded.append(self.load())
        return self.loaded[-1]

    def _rows(
        self, encoder: "TextEncoder", encode: "Callable[[TextEncoder, Sequence[str]], Iterable[Content]]"
    ) -> DoRows[Content]:
        def do_rows(n_before: int, rows: Iterator[Row]) -> Iterator[Result[Content]]:
            del n_before
            while chunk := [text for (text,) in islice(rows, self.chunk)]:
                yield from map(Result, encode(encoder, chunk))

        return do_rows


def report_truncated(encoder: "TextEncoder") -> None:
    """Reports the number of truncated texts on standard error."""
    if encoder.n_truncated:
        max_tokens = encoder.config.max_text_tokens
        say(f"note: {counted(encoder.n_truncated, 'text')} truncated to the model's {max_tokens} tokens")
