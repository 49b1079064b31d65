"""Command-line options for work in shards, and the work itself."""

import hashlib
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from transformer.cli.fields import takes
from transformer.cli.files import check_files, check_new_folder, check_readable
from transformer.cli.progress import progress_bar
from transformer.cli.verbosity import say
from transformer.errors import ConfigError, DataError, counted

if TYPE_CHECKING:
    from transformer.sharding.job import Job, ShardOutput
    from transformer.sharding.shards import Shard, Source

MAX_SHARDS: Final = 99_999
SHOWN_REJECTS: Final = 5
PANEL: Final = "Shards"
Settings = dict[str, Any]
"""What determines the results, as JSON values."""
Work = Callable[["Shard", "ShardOutput"], None]
"""Function that writes the result of a shard."""


@dataclass(frozen=True)
class ShardingOptions:
    """Options for work in shards.

    Attributes:
        shards: Number of shards; 0 without shards.
        join: File for all results in the order of the input; None leaves them in the folder.
    """

    shards: int
    join: Path | None

    def __bool__(self) -> bool:
        """Whether the work is done in shards."""
        return self.shards > 0

    def check(
        self, inputs: Sequence[Path | None], needed: str, output: Path | None, unsupported: Mapping[str, object]
    ) -> tuple[list[Path], Path]:
        """Checks the paths, and that no option is set that does not go with shards.

        Args:
            inputs: Files that are divided.
            needed: Their options, for messages.
            output: Path of `--output`.
            unsupported: Values of options that write files of their own or need the whole text, by option.

        Returns:
            The input files and the folder of the results.

        Raises:
            ConfigError: A path is missing, or an option does not go with shards.
            DataError: An input cannot be read.
        """
        paths = [path for path in inputs if path is not None]
        if len(paths) < len(inputs) or output is None:
            files = "a file" if len(inputs) == 1 else "files"
            raise ConfigError(f"--shards needs {files} and a folder for its results; give {needed} and --output FOLDER")
        if misplaced := [name for name, value in unsupported.items() if value]:
            raise ConfigError(f"{misplaced[0]} does not go with --shards; leave out one of them")
        for path in paths:
            check_readable(path)
            if not path.is_file():
                raise DataError(f"{path} is not a regular file, which --shards needs; write the text to a file first")
        if output.is_file():
            raise ConfigError(f"{output} is a file, but --shards writes a folder; choose another name")
        check_new_folder(output, may_be_used=True)
        check_files(paths, [self.join])
        return paths, output


ShardsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_SHARDS,
        metavar="N",
        help="divide the input into N parts, which any number of processes on any number of machines share: "
        "start the same command in each; --output is then a folder that all see",
    ),
]


def sharding_of(
    shards: ShardsOption = None,
    join: Annotated[
        Path | None,
        typer.Option("--join", help="when all parts are there, write them to this file in the order of the input"),
    ] = None,
) -> ShardingOptions:
    """Builds the options for work in shards from the command line.

    Raises:
        ConfigError: `--join` was given without `--shards`.
    """
    if join is not None and not shards:
        raise ConfigError("--join has no effect without --shards; add it")
    return ShardingOptions(shards or 0, join)


takes_sharding = takes("sharding", sharding_of, PANEL)
"""Decorator that adds the options of `sharding_of`, for the parameter `sharding`."""


def model_identity(model: Path) -> str:
    """Returns a checksum that tells models apart: that of the manifest, or of the names and sizes of other files."""
    from transformer.bundle.hub_cache import find_model
    from transformer.storage.checkpoint_paths import resolve_model
    from transformer.storage.verified_folder import MANIFEST_SUM

    folder = resolve_model(find_model(model))
    manifest = folder / MANIFEST_SUM
    if manifest.exists():
        return manifest.read_text(encoding="ascii").strip()
    files = sorted((path.name, path.stat().st_size) for path in folder.iterdir() if path.is_file())
    return hashlib.sha256(repr(files).encode()).hexdigest()


@dataclass(frozen=True)
class ShardedCommand:
    """The work of a command in shards.

    Attributes:
        name: Name of the command.
        settings: What determines the results, beside the version of the program.
        prepare: Function of the settings of the job that loads the model and returns a function, which does a shard.
        suffix: End of the names of the results.
        decide: Function that returns settings that the first process decides for all.
        write_joined: Function that writes the results of a job to the opened file of `--join`, if they are not just
            written one after another.
    """

    name: str
    settings: Settings
    prepare: Callable[[Settings], Work]
    suffix: str = ".txt"
    decide: Callable[[], Settings] = dict
    write_joined: "Callable[[Job, BinaryIO], None] | None" = None


def work_in_shards(options: ShardingOptions, source: "Source", folder: Path, command: ShardedCommand) -> "Job":
    """Does shards until all are finished, by this process and all others that run the same command.

    Args:
        options: Options of the command line.
        source: The input.
        folder: Folder of the results.
        command: The command.

    Returns:
        The job, which is finished.

    Raises:
        DataError: The folder holds results of other settings or of another input.
        OutputError: A result cannot be written.
    """
    import transformer
    from transformer.sharding.environment import find_place
    from transformer.sharding.job import Job

    settings = {"command": command.name, "version": transformer.__version__, **command.settings}
    with ExitStack() as stack:
        stack.enter_context(ended_by_signal())
        job = Job(folder, source, settings, options.shards, command.suffix, command.decide)
        stack.callback(job.close)
        with progress_bar("bytes") as read:
            job.plan(read)
        for path in source.sequential if len(job.shards) > 1 else ():
            say(f"{path.name} cannot be split, so each part is found by reading all that precedes it; see bgzip")
        place = find_place()
        if place.launcher:
            say(f"process {place.rank} of {place.size} ({place.launcher})")
        work = command.prepare(job.settings) if not job.is_finished else _nothing
        with progress_bar(source.unit, job.n_items) as done:
            job.run(work, place, done)
        _name_rejected(list(job.rejected()), folder, source.unit)
        write = command.write_joined and partial(command.write_joined, job)
        if options.join is not None and job.join(options.join, write):
            items, parts = counted(job.n_items, source.unit.removesuffix("s")), counted(len(job.shards), "part")
            say(f"{items} in {parts} joined to {options.join}")
        return job


def _nothing(shard: "Shard", output: "ShardOutput") -> None:
    del shard, output


def _name_rejected(rejected: list[tuple[int, str]], folder: Path, unit: str) -> None:
    for _, reason in rejected[:SHOWN_REJECTS]:
        say(reason)
    if rejected:
        items = counted(len(rejected), unit.removesuffix("s"))
        say(f"{items} could not be done; {folder}/part-*.rejected.jsonl gives the reasons")


@contextmanager
def ended_by_signal() -> Generator[None]:
    """Ends the block by an exception on SIGTERM, so that the work at hand is free for others at once."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
