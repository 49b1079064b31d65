"""`transformer translate`: lines in, as many lines out."""

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from transformer.cli.search import AlphaOption, BeamOption, PenaltyOption, chosen_beam
from transformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from transformer.text.lines import Invalid

ModelArgument = Annotated[Path, typer.Argument(help="model folder, or run folder (its best)")]


InvalidOption = Annotated[str, typer.Option("--invalid-utf8", help="'error', or 'replace' bytes that are not UTF-8")]
CHUNK_LINES, READ_BYTES = 1024, 1 << 16


def translate(
    model: ModelArgument,
    input_path: Annotated[
        Path | None, typer.Option("--input", help="text file, plain or .gz; standard input if not given")
    ] = None,
    output_path: Annotated[
        Path | None, typer.Option("--output", help="file to write; standard output if not given")
    ] = None,
    invalid_utf8: InvalidOption = "error",
    beam: BeamOption = 1,
    length_penalty: PenaltyOption = "paper",
    alpha: AlphaOption = None,
) -> None:
    """Translate line by line. An empty line stays empty; n lines in are n lines out.

    A line that is too long for the model is split at sentence ends; where that is not enough, a note on standard
    error names the line. Standard input is translated as it comes.

    Example: echo "A man sleeps." | transformer translate runs/first
    """
    invalid = invalid_choice(invalid_utf8)
    if input_path is not None and output_path is not None and input_path.resolve() == output_path.resolve():
        raise DataError(f"{input_path} is both input and output; choose another output file")

    from transformer.loading import load  # loads torch

    translator = load(model, beam=chosen_beam(beam, length_penalty, alpha))
    number = 0
    with _output(output_path) as sink:
        for chunk in _progress(_chunks(input_path, invalid), output_path):
            for translation in translator.translations(chunk):
                number += 1
                sink.write(translation.text.encode() + b"\n")
                print_flags(number, translation.flags)
            sink.flush()


def invalid_choice(value: str) -> "Invalid":
    """The checked value of --invalid-utf8.

    Raises:
        ConfigError: it is none.
    """
    if value == "error" or value == "replace":
        return value
    raise ConfigError(f"invalid_utf8={value!r} is unknown; choose 'error' or 'replace'")


def print_flags(number: int, flags: tuple[str, ...]) -> None:
    """Names a line on standard error with what a reader should know of it."""
    for flag in flags:
        print(f"line {number}: {flag}", file=sys.stderr)


def _chunks(path: Path | None, invalid: "Invalid") -> Iterator[list[str]]:
    """Lines by the thousand from a file; from standard input, as many as have come."""
    from transformer.text.lines import LineCounts, decode_lines, read_lines

    if path is None:
        counts = LineCounts()
        for raw in _available_lines(sys.stdin.fileno()):
            yield list(decode_lines(raw, "standard input", counts, invalid))
        return
    lines = read_lines(path, invalid=invalid)
    while chunk := list(islice(lines, CHUNK_LINES)):
        yield chunk


def _available_lines(descriptor: int) -> Iterator[list[bytes]]:
    """Whole lines as soon as they arrive, so that a program may write a line and wait for its translation."""
    rest = b""
    while data := os.read(descriptor, READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield [line + b"\n" for line in lines]
    if rest:
        yield [rest]


@contextmanager
def _output(path: Path | None) -> Generator[BinaryIO]:
    """The file, or standard output. A reader of ours that has had enough (`| head`) is no error."""
    if path is None:
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except BrokenPipeError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit would fail again
            raise typer.Exit(0) from error
        return
    try:
        file = path.open("wb")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; choose another output file") from error
    with file:
        yield file


def _progress(chunks: Iterator[list[str]], output_path: Path | None) -> Iterator[list[str]]:
    """Passes chunks on; shows how many lines are done where that does not mix with the translations."""
    if not sys.stderr.isatty() or (output_path is None and sys.stdout.isatty()):
        yield from chunks
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.completed} lines"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        for chunk in chunks:
            yield chunk
            bar.advance(task, len(chunk))
