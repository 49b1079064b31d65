"""`--shards` of commands that translate lines: `translate`, `backtranslate` and `distill`."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from transformer.cli.chunks import split_into_chunks, translate_chunks
from transformer.cli.formats import formatter
from transformer.cli.notes import collect_notes
from transformer.cli.pairs_file import as_tsv, with_seed
from transformer.cli.parquet_shards import SUFFIX, TEXT_COLUMN, TableColumns, TableReader, TableWork
from transformer.cli.sharded_lines import Content, DoRows, LineReader, LineWork, Result, Row
from transformer.cli.sharding import Settings, ShardedCommand, ShardingOptions, model_identity, work_in_shards
from transformer.errors import ConfigError
from transformer.options.search import Search

if TYPE_CHECKING:
    from transformer.cli.document_settings import DocumentSettings
    from transformer.cli.documents import DocumentFile
    from transformer.cli.search import Loading
    from transformer.pipelines.translation.config import Languages
    from transformer.pipelines.translation.results import Translation
    from transformer.pipelines.translation.terminology import Terminology
    from transformer.pipelines.translation.translator import Translator
    from transformer.sharding.job import Job
    from transformer.text.lines import Invalid


@dataclass(frozen=True)
class OutputFormat:
    """Format of the translations.

    Attributes:
        name: One of `transformer.cli.formats.Format`.
        n_best: Number of alternatives; None writes the best alone.
        min_confidence: Confidence below which the text is marked; None marks none.
    """

    name: str
    n_best: int | None
    min_confidence: float | None


@dataclass(frozen=True)
class TranslationSetup:
    """The model of a translation, and what else determines its results.

    Attributes:
        model: Path or name of the model.
        search: The search.
        loading: Options for loading the model.
        terminology: Terms and kept spans.
        languages: `source_language` and `target_language` that were given.
    """

    model: Path
    search: Search
    loading: "Loading"
    terminology: "Terminology"
    languages: "Languages"

    def settings(self, **others: object) -> Settings:
        """Returns what determines the translations, see `translation_settings`."""
        return translation_settings(
            self.model, self.search, self.loading, self.languages, terms=self.terminology, **others
        )


@dataclass(frozen=True)
class ShardedTranslation(TranslationSetup):
    """A translation in shards.

    Attributes:
        output: How translations are written.
        invalid: Handling of bytes that are not UTF-8; "error" sets the line apart.
    """

    output: OutputFormat
    invalid: "Invalid"

    def run(self, sharding: ShardingOptions, path: Path, folder: Path, columns: TableColumns, limit: int) -> None:
        """Translates shards until all are there.

        Args:
            sharding: Options of the command line.
            path: The input file.
            folder: Folder of the results.
            columns: Columns of a Parquet file.
            limit: Number of characters of a line that are read.

        Raises:
            TransformerError: The model cannot be loaded, or the folder holds other results or cannot be written.
        """
        settings = self.settings(format=(self.output, self.invalid))
        if path.suffix == SUFFIX:
            if self.output != OutputFormat("text", None, None):
                raise ConfigError("--format, --n-best and --min-confidence are for text, but the input is a table")
            self._translate_table(sharding, path, folder, columns, limit, settings)
            return
        from transformer.sharding.lines import TextFiles

        lines = LineWork(LineReader(TextFiles([path]), limit, self.invalid))
        work = ShardedCommand(
            "translate", settings, lambda decided: lines.by(self._prepare(decided)),
            suffix=".jsonl" if self.output.name == "jsonl" else ".txt",
            decide=lambda: seed_of(self.search),
        )  # fmt: skip
        work_in_shards(sharding, lines.reader.source, folder, work)

    def _translate_table(
        self, sharding: ShardingOptions, path: Path, folder: Path, columns: TableColumns, limit: int, settings: Settings
    ) -> None:
        """Translates a column to Parquet files with the columns `translation` and `confidence`."""
        import pyarrow as pa

        from transformer.pipelines.translation.columns import join_lines
        from transformer.sharding.parquet_rows import ParquetRows

        reader = TableReader(ParquetRows(path, [columns.text or TEXT_COLUMN], columns.ids), limit)
        results = pa.schema([("translation", pa.string()), ("confidence", pa.float64())])
        TableWork(reader, results).run(
            sharding, folder, "translate", settings,
            lambda decided: translate_rows(self._load(decided), lambda number, row, lines: join_lines(lines)),
            lambda: seed_of(self.search),
        )  # fmt: skip

    def run_documents(
        self, sharding: ShardingOptions, documents: "Sequence[DocumentFile]", folders: tuple[Path, Path],
        settings: "DocumentSettings", *, verbose: bool, quiet: bool,
    ) -> None:  # fmt: skip
        """Translates the documents of a folder until all are there.

        Args:
            sharding: Options of the command line.
            documents: The documents.
            folders: Their folder, and that of the translated documents.
            settings: Options of the command line for documents.
            verbose: Whether all notes are printed.
            quiet: Whether no note is printed.
        """
        from transformer.cli.document_shards import DocumentFolder, translate_folder_in_shards

        options = settings.options(self.output.min_confidence)
        command = self.settings(documents=options), lambda: seed_of(self.search), self._load
        with collect_notes(verbose=verbose, quiet=quiet) as notes:
            source = DocumentFolder(folders[0], documents)
            translate_folder_in_shards(
                sharding, source, folders[1], command, options, notes, verbose=verbose, report=settings.report
            )

    def _load(self, settings: Settings) -> "Translator":
        search = with_seed(self.search, settings["seed"])
        return self.loading.translator(self.model, search, terminology=self.terminology, **self.languages)

    def _prepare(self, settings: Settings) -> DoRows[bytes]:
        """Loads the model."""
        translator, search = self._load(settings), self.search
        format_line = formatter(
            self.output.name, all_alternatives=self.output.n_best is not None,
            min_confidence=self.output.min_confidence, seed=settings["seed"] if search.sampling else None,
        )  # fmt: skip

        def form(number: int, row: Row, translations: "Sequence[Translation]") -> bytes:
            return f"{format_line(number, row[0], translations[0])}\n".encode()

        return translate_rows(translator, form)


def translate_rows(
    translator: "Translator", form: "Callable[[int, Row, Sequence[Translation]], Content]"
) -> DoRows[Content]:
    """Returns a function that translates the first text of each row, line by line if it has several.

    Args:
        translator: The translator.
        form: Function of the number of a row, from 1, the row and the translations of its lines, that returns what is
            written.
    """

    def translate(n_before: int, rows: Iterator[Row]) -> Iterator[Result[Content]]:
        pending, number = deque[tuple[Row, int]](), n_before

        def sources() -> Iterator[str]:
            for row in rows:
                lines = row[0].split("\n")
                pending.append((row, len(lines)))
                yield from lines

        chunks = ((chunk, None) for chunk in split_into_chunks(sources()))
        translated = chain.from_iterable(lines for _, lines in translate_chunks(translator, chunks, None, n_before))
        for translation in translated:
            number += 1
            row, n_lines = pending.popleft()
            yield Result(form(number, row, [translation, *islice(translated, n_lines - 1)]))

    return translate


def translation_settings(
    model: Path, search: Search, loading: "Loading", languages: "Languages", **others: object
) -> Settings:
    """Returns what determines the translations of lines, apart from the seed of samples."""
    return {
        "model": model_identity(model),
        "search": repr(with_seed(search, 0)),
        "options": repr((sorted(loading.options.items()), loading.average, languages)),
        **{name: repr(value) for name, value in others.items()},
    }


def seed_of(search: Search) -> Settings:
    """Returns the seed of samples, which the first process decides."""
    return {"seed": search.sampling.seed if search.sampling else 0}


def pairs_in_shards(
    name: str,
    sharding: ShardingOptions,
    paths: Sequence[Path],
    folder: Path,
    settings: Settings,
    search: Search,
    load: "Callable[[Search], Translator]",
    pair: "Callable[[Row, Translation], tuple[str, str]]",
    invalid: "Invalid",
    columns: TableColumns | None = None,
) -> "Job":
    """Translates lines in shards, and writes tables of pairs.

    Args:
        name: Name of the command.
        sharding: Options of the command line.
        paths: The text, and further files of as many lines.
        folder: Folder of the results.
        settings: What determines the pairs, see `translation_settings`.
        search: The search.
        load: Function that loads the translator for a search.
        pair: Function of the lines of a row and a translation, that returns a pair.
        invalid: Handling of bytes that are not UTF-8; "error" sets the row apart.
        columns: Columns of the text, if it is a Parquet file; its pairs are columns named as those of training text.

    Returns:
        The job, which is finished.
    """
    from transformer.text.lines import MAX_LINE_CHARACTERS

    def do_rows(decided: Settings, form: "Callable[[tuple[str, str]], Content]") -> DoRows[Content]:
        translator = load(with_seed(search, decided["seed"]))
        return translate_rows(translator, lambda number, row, lines: form(pair(row, lines[0])))

    if columns is not None and paths[0].suffix == SUFFIX:
        import pyarrow as pa

        from transformer.sharding.parquet_rows import ParquetRows

        rows = ParquetRows(paths[0], [columns.text or TEXT_COLUMN], columns.ids)
        reader = TableReader(rows, MAX_LINE_CHARACTERS, on_one_line=True)
        table = TableWork(reader, pa.schema([("source", pa.string()), ("target", pa.string())]))
        return table.run(
            sharding,
            folder,
            name,
            settings,
            lambda decided: do_rows(decided, lambda pair: pair),
            lambda: seed_of(search),
        )
    from transformer.sharding.lines import TextFiles

    lines = LineWork(LineReader(TextFiles(paths), MAX_LINE_CHARACTERS, invalid))
    command = ShardedCommand(
        name, settings, lambda decided: lines.by(do_rows(decided, lambda pair: as_tsv(pair).encode())),
        ".tsv", lambda: seed_of(search),
    )  # fmt: skip
    return work_in_shards(sharding, lines.reader.source, folder, command)
