"""Command-line options for work in shards, and the work itself."""

import hashlib
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from transformer.cli.fields import takes
from transformer.cli.files import check_files, check_new_folder, check_readable
from transformer.cli.progress import progress_bar
from transformer.cli.verbosity import say
from transformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from transformer.sharding.lines import Shard
    from transformer.text.lines import Invalid

MAX_SHARDS: Final = 99_999
SHOWN_REJECTS: Final = 5
PANEL: Final = "Shards"
DoLines = Callable[[int, Iterator[str]], Iterator[bytes]]
"""Function of the number of lines before some lines, and of these lines, that yields the results, in order."""
Settings = dict[str, Any]
"""What determines the results, as JSON values; a random `seed` is that of the process that came first."""


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
        self, input_path: Path | None, output: Path | None, unsupported: Mapping[str, object]
    ) -> tuple[Path, Path]:
        """Checks the paths, and that no option is set that does not go with shards.

        Args:
            input_path: Path of `--input`.
            output: Path of `--output`.
            unsupported: Values of options that write files of their own, by option.

        Returns:
            The input file and the folder of the results.

        Raises:
            ConfigError: A path is missing, or an option does not go with shards.
            DataError: The input cannot be read.
        """
        if input_path is None or output is None:
            raise ConfigError(
                "--shards needs a file and a folder for its results; give --input FILE and --output FOLDER"
            )
        if misplaced := [name for name, value in unsupported.items() if value]:
            raise ConfigError(f"{misplaced[0]} does not go with --shards; leave out one of them")
        check_readable(input_path)
        if not input_path.is_file():
            raise DataError(f"{input_path} is not a regular file, which --shards needs; write the text to a file first")
        if output.is_file():
            raise ConfigError(f"{output} is a file, but --shards writes a folder; choose another name")
        check_new_folder(output, may_be_used=True)
        check_files([input_path], [self.join])
        return input_path, output


def sharding_of(
    shards: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_SHARDS,
            help="divide the input into so many parts, which any number of processes on any number of machines share: "
            "start the same command in each; --output is then a folder that all see",
        ),
    ] = None,
    join: Annotated[
        Path | None,
        typer.Option("--join", help="when all parts are there, write them to this file in the order of the input"),
    ] = None,
) -> ShardingOptions:  # fmt: skip
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


def work_in_shards(
    options: ShardingOptions,
    paths: tuple[Path, Path],
    settings: Settings,
    prepare: Callable[[Settings], DoLines],
    *,
    suffix: str = ".txt",
    limit: int,
    invalid: "Invalid" = "error",
) -> None:
    """Does the shards of a file until all are finished, by this process and all others that run the same command.

    Args:
        options: Options of the command line.
        paths: The input file and the folder of the results.
        settings: What determines the results, beside the version of the program.
        prepare: Function of the settings of the job that loads the model and returns a function, which does the lines
            of a shard. A line that cannot be read is passed as an empty one.
        suffix: End of the names of the results.
        limit: Number of characters of a line that are read.
        invalid: Handling of bytes that are not UTF-8; "error" sets the line apart.

    Raises:
        DataError: The folder holds results of other settings or of another input.
        OutputError: A result cannot be written.
    """
    import transformer
    from transformer.sharding.environment import find_place
    from transformer.sharding.job import Job, ShardOutput

    path, folder = paths
    with ExitStack() as stack:
        stack.enter_context(_ended_by_signal())
        job = Job(folder, path, {"version": transformer.__version__, **settings}, options.shards, suffix)
        stack.callback(job.close)
        with progress_bar("bytes", path.stat().st_size if path.suffix not in (".gz", ".zst") else None) as read:
            job.plan(read)
        if path.suffix in (".gz", ".zst") and len(job.shards) > 1:
            say(f"{path.name} is compressed, so each part is found by reading all that precedes it")
        place = find_place()
        if place.launcher:
            say(f"process {place.rank} of {place.size} ({place.launcher})")

        do_lines = prepare(job.settings) if not job.is_finished else _nothing

        def work(shard: "Shard", output: ShardOutput) -> None:
            lines = _readable_lines(path, shard, output.rejected, limit, invalid)
            for result in do_lines(shard.first_line, lines):
                output.write(result)

        total = sum(shard.n_lines for shard in job.shards)
        with progress_bar("lines", total) as done:
            job.run(work, place, done)
        _name_rejected(list(job.rejected()), folder)
        if options.join is not None and job.join(options.join):
            say(f"{total:,} lines in {len(job.shards):,} parts joined to {options.join}")


def _nothing(n_before: int, lines: Iterator[str]) -> Iterator[bytes]:
    del n_before, lines
    return iter(())


def _readable_lines(
    path: Path, shard: "Shard", rejected: list[tuple[int, str]], limit: int, invalid: "Invalid"
) -> Iterator[str]:
    """Yields the lines of a shard; instead of one that cannot be read, an empty line, whose reason is noted."""
    from transformer.sharding.lines import read_shard
    from transformer.text.lines import LineCounts, decode_lines

    for number, raw in enumerate(read_shard(path, shard, limit), start=shard.first_line):
        try:
            counts = LineCounts(number)
            yield from decode_lines([raw], str(path), counts, invalid, remedy="", overlong="cut", limit=limit)
        except DataError as error:
            rejected.append((number + 1, str(error)))
            yield ""


def _name_rejected(rejected: list[tuple[int, str]], folder: Path) -> None:
    for _, reason in rejected[:SHOWN_REJECTS]:
        say(reason)
    if rejected:
        lines = "line" if len(rejected) == 1 else "lines"
        say(
            f"{len(rejected):,} {lines} could not be read and have no result; {folder}/part-*.rejected.jsonl names them"
        )


@contextmanager
def _ended_by_signal() -> Generator[None]:
    """Ends the block by an exception on SIGTERM, so that the part at hand is free for others at once."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
