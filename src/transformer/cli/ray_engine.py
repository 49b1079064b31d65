"""`transformer translate --engine ray`: Parquet files that the actors of a Ray cluster translate."""

import json
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from transformer.cli.fields import takes
from transformer.cli.files import check_new_folder, check_readable
from transformer.cli.parquet_shards import SUFFIX, TEXT_COLUMN, TableColumns
from transformer.cli.ray_cluster import FREE_CPUS, one_line_errors, ray_cluster, ray_modules
from transformer.cli.search import with_average
from transformer.cli.sharding import ended_by_signal
from transformer.cli.translate_shards import TranslationSetup
from transformer.cli.verbosity import is_quiet, say
from transformer.errors import ConfigError, DataError, counted
from transformer.storage.atomic import replace_text

BATCH_ROWS: Final = 1024
BLOCK_BATCHES: Final = 16
"""Batches of a block, which is written as one file; the work of an actor that fails is repeated from its block on."""
ACTOR_STARTS: Final = 3
"""Actors in a row that may die while they start, e.g. for lack of memory; each is replaced by another one."""
NEW_COLUMNS: Final = ("translation", "confidence", "error")
JOB, RECORD, RESULT, LEASE = "_job", "job.json", "result.json", "running"
"""Folder within that of the results, its files, and its lease. Readers of Parquet skip names that begin with `_`."""


@dataclass(frozen=True)
class RayOptions:
    """Options for a translation by Ray.

    Attributes:
        is_chosen: Whether Ray is the engine.
        concurrency: Number of actors; None for as many as the cluster can hold.
        num_cpus: Cores of an actor.
        num_gpus: GPUs of an actor.
        batch_size: Rows that are given to an actor at a time.
    """

    is_chosen: bool
    concurrency: int | None
    num_cpus: float
    num_gpus: float
    batch_size: int

    def __bool__(self) -> bool:
        """Whether Ray is the engine."""
        return self.is_chosen

    def check(self, source: Path | None, folder: Path | None, unsupported: Mapping[str, object]) -> tuple[Path, Path]:
        """Checks the paths, and that no option is set that Ray cannot obey.

        Args:
            source: Path of `--input`.
            folder: Path of `--output`.
            unsupported: Values of other options, by option.

        Raises:
            ConfigError: A path is missing, or an option does not go with Ray.
            DataError: The input cannot be read.
            OutputError: The folder cannot be written.
        """
        if source is None or folder is None:
            raise ConfigError("--engine ray needs Parquet files and a folder; give --input FILE and --output FOLDER")
        if misplaced := [name for name, value in unsupported.items() if value]:
            raise ConfigError(f"{misplaced[0]} does not go with --engine ray; leave out one of them")
        check_readable(source, may_be_folder=True)
        if folder.is_file():
            raise ConfigError(f"{folder} is a file, but --engine ray writes a folder; choose another name")
        check_new_folder(folder, may_be_used=True)
        if folder.resolve() == source.resolve():
            raise ConfigError(f"{folder} is both input and output; choose another folder")
        return source.resolve(), folder.resolve()


def ray_of(
    engine: Annotated[
        Literal["ray"] | None,
        typer.Option(help="ray: translate a Parquet file, or a folder of them, by actors of a Ray cluster"),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="number of actors; default: as many as the cluster can hold")
    ] = None,
    num_cpus: Annotated[float | None, typer.Option(min=0.1, help="cores of an actor; default: 1")] = None,
    num_gpus: Annotated[
        float | None, typer.Option(min=0, help="GPUs of an actor; default: none, it computes on a CPU")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help=f"rows that an actor gets at a time; default: {BATCH_ROWS}")
    ] = None,
) -> RayOptions:
    """Builds the options of Ray from the command line.

    Raises:
        ConfigError: One of them was given without `--engine ray`.
    """
    values = {"concurrency": concurrency, "num-cpus": num_cpus, "num-gpus": num_gpus, "batch-size": batch_size}
    if engine is None and (misplaced := [name for name, value in values.items() if value is not None]):
        raise ConfigError(f"--{misplaced[0]} has no effect without --engine ray; add it")
    return RayOptions(engine == "ray", concurrency, num_cpus or 1, num_gpus or 0, batch_size or BATCH_ROWS)


takes_ray = takes("ray_options", ray_of, "Ray")
"""Decorator that adds the options of `ray_of`, for the parameter `ray_options`."""


@dataclass(frozen=True)
class RayTranslation(TranslationSetup):
    """A translation by Ray."""

    def run(self, options: RayOptions, source: Path, folder: Path, columns: TableColumns) -> None:
        """Translates all rows that are not translated yet.

        Args:
            options: Options of the command line.
            source: A Parquet file, or a folder of them.
            folder: Folder of the results.
            columns: Columns of the files.

        Raises:
            ConfigError: The search samples.
            DataError: The files have no such columns, the folder holds other results, or rows are missing at the end.
            TransformerError: The model cannot be loaded.
        """
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # read when Ray is imported
        import_module("ray")  # before anything is written

        import transformer

        if self.search.sampling:
            raise ConfigError("samples depend on the number of each line, which Ray does not know; use --shards")
        self.loading.obtain_models(self.model)
        files = parquet_files(source)
        n_rows = _check_tables(files, columns)
        settings = {"version": transformer.__version__, **self.settings(columns=columns)}
        with _job(folder, settings, files, continues=bool(columns.ids)) as job:
            if not (job / RESULT).exists():
                with one_line_errors(folder, continues=bool(columns.ids)):
                    self._translate(options, files, folder, columns)
                _record_result(folder, job / RESULT, n_rows)
            _report(folder, json.loads((job / RESULT).read_text(encoding="utf-8")))

    def _translate(self, options: RayOptions, files: Sequence[Path], folder: Path, columns: TableColumns) -> None:
        """Runs the job of Ray; rows whose ids are noted as written are left out."""
        from transformer.ray import Translate

        ray, data = ray_modules("ray", "ray.data")

        text, *ids = columns.names
        with ray_cluster():
            n_actors = options.concurrency or fitting_actors([node["Resources"] for node in ray.nodes()], options)
            say(f"{counted(n_actors, 'actor')} of Ray")
            context = data.DataContext.get_current()
            context.raise_original_map_exception = True
            context.max_consecutive_actor_init_deaths = ACTOR_STARTS  # otherwise, the first one ends the job
            context.use_datasource_v2 = False  # it starts 32 actors to read footers, also on a machine of two cores
            context.enable_progress_bars = sys.stderr.isatty() and not is_quiet()
            # Beside the folder: Ray clears up by searching the folder for names that files in both have.
            noted = str(folder.with_name(f"{folder.name}.checkpoint"))
            context.checkpoint_config = data.checkpoint.CheckpointConfig(ids[0], noted) if ids else None
            dataset = data.read_parquet([str(path) for path in files])
            dataset = dataset.repartition(target_num_rows_per_block=BLOCK_BATCHES * options.batch_size)
            dataset = dataset.map_batches(
                Translate, fn_constructor_args=(_absolute(self.model),), batch_format="pyarrow",
                fn_constructor_kwargs={"text_column": text, **self._loading()}, batch_size=options.batch_size,
                compute=data.ActorPoolStrategy(min_size=options.concurrency or 1, max_size=n_actors),
                num_cpus=options.num_cpus, num_gpus=options.num_gpus or None,
            )  # fmt: skip
            dataset.write_parquet(str(folder))

    def _loading(self) -> dict[str, Any]:
        """Returns the options of `load` for an actor, which runs in another folder."""
        options = {
            name: [*map(_absolute, value)] if isinstance(value, list) else _absolute(value)
            for name, value in self.loading.options.items()
        }
        search = with_average(self.search, self.loading.average, self.loading.options.get("ensemble"))
        return {**options, **self.languages, "search": search, "terminology": self.terminology}


def _absolute(value: Any) -> Any:
    """Returns an absolute path for the path of something that exists, and all else as it is."""
    return value.absolute() if isinstance(value, Path) and value.exists() else value


def fitting_actors(nodes: Sequence[Mapping[str, float]], options: RayOptions) -> int:
    """Returns how many actors the machines of a cluster can hold, beside tasks that read and write.

    Args:
        nodes: Number of CPUs and GPUs of each machine.
        options: Options of the command line.
    """
    if options.num_gpus:
        return max(1, sum(int(node.get("GPU", 0) / options.num_gpus) for node in nodes))
    whole = sum(int(node.get("CPU", 0) / options.num_cpus) for node in nodes)
    return max(1, min(whole, int((sum(node.get("CPU", 0) for node in nodes) - FREE_CPUS) / options.num_cpus)))


def parquet_files(source: Path) -> list[Path]:
    """Returns a file, or those of a folder whose paths have no name that begins with `_` or a dot.

    Raises:
        DataError: There is none.
    """
    if source.is_file() and source.suffix == SUFFIX:
        return [source]
    paths = sorted(path for path in source.rglob(f"*{SUFFIX}") if path.is_file())
    files = [path for path in paths if not any(part[0] in "._" for part in path.relative_to(source).parts)]
    if not files:
        raise DataError(f"{source} is not a {SUFFIX} file or a folder with such files, which --engine ray needs")
    return files


def _check_tables(files: Sequence[Path], columns: TableColumns) -> int:
    """Checks the columns of all files, and returns the number of their rows.

    Raises:
        DataError: A column is missing, of another type, or there before it is written; or a row has no id.
    """
    from transformer.sharding.parquet_rows import ParquetRows, open_parquet

    n_rows = 0
    for path in files:
        text = columns.text or TEXT_COLUMN
        ParquetRows(path, [text], columns.ids).kept()
        with open_parquet(path) as table:
            if text not in table.schema_arrow.names:
                raise DataError(f"{path}: {text!r} is a field of a column, but Ray reads columns; make it one")
            if taken := set(NEW_COLUMNS) & set(table.schema_arrow.names):
                raise DataError(f"{path} has a column {min(taken)!r} already, which is written; rename it")
            n_rows += table.metadata.num_rows
            if columns.ids and _count_nulls(table.metadata, columns.ids):
                raise DataError(f"{path}: column {columns.ids!r} is empty in some rows; give each row an id")
    return n_rows


def _count_nulls(metadata: Any, name: str) -> int:
    """Returns the number of empty values of a column, by the statistics of a Parquet file."""
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    parts = (group.column(index) for group in groups for index in range(group.num_columns))
    statistics = (part.statistics for part in parts if part.path_in_schema == name)
    return sum(facts.null_count or 0 for facts in statistics if facts is not None)


@contextmanager
def _job(folder: Path, settings: Mapping[str, Any], files: Sequence[Path], *, continues: bool) -> Generator[Path]:
    """Holds the folder of the results, so that no other process writes to it, and yields its part for records.

    Args:
        folder: Folder of the results.
        settings: What determines the results.
        files: Files of the input.
        continues: Whether a job that was ended is continued.

    Raises:
        DataError: The folder belongs to another job or another process, or the job cannot be continued.
        OutputError: The folder cannot be written.
    """
    from transformer.sharding.job import check_settings
    from transformer.sharding.leases import LeaseFolder
    from transformer.sharding.lines import file_facts

    job = folder / JOB
    if not job.exists():
        check_new_folder(folder)
    leases = LeaseFolder(job / "leases")
    with ExitStack() as stack:
        stack.enter_context(ended_by_signal())
        stack.callback(leases.close)
        if not leases.acquire(LEASE):
            raise DataError(f"another process writes to {folder}, or was killed less than two minutes ago; wait for it")
        stack.enter_context(leases.renewed(LEASE))
        current = {**settings, "input": [[str(path), file_facts(path)] for path in files]}
        if (job / RECORD).exists():
            check_settings(folder, json.loads((job / RECORD).read_text(encoding="utf-8")), current)
            if not continues and not (job / RESULT).exists():
                raise DataError(f"{folder} holds a part of the rows; remove it, or use --id-column to continue a job")
        else:
            replace_text(job / RECORD, json.dumps(current, indent=1))
        yield job


def _record_result(folder: Path, record: Path, n_rows: int) -> None:
    """Counts the rows of the results, and records that all are there.

    Raises:
        DataError: There are fewer or more than in the input.
    """
    from transformer.sharding.parquet_rows import open_parquet

    written = failed = 0
    for path in folder.glob(f"*{SUFFIX}"):
        with open_parquet(path) as table:
            written += table.metadata.num_rows
            failed += table.metadata.num_rows - _count_nulls(table.metadata, NEW_COLUMNS[-1])
    if written != n_rows:
        raise DataError(
            f"{folder} has {counted(written, 'row')}, but the input has {n_rows:,}; if two rows had one id, "
            "give each its own, remove the folder and start again"
        )
    replace_text(record, json.dumps({"rows": written, "failed": failed}))


def _report(folder: Path, result: Mapping[str, int]) -> None:
    say(f"{counted(result['rows'], 'row')} {'is' if result['rows'] == 1 else 'are'} in {folder}")
    if failed := result["failed"]:
        say(f"{counted(failed, 'row')} could not be translated; the column {NEW_COLUMNS[-1]!r} says why")
