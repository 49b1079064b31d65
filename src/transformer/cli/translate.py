"""`transformer translate`: lines in, as many lines out."""

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from transformer.errors import DataError

ModelArgument = Annotated[Path, typer.Argument(help="model folder, or run folder (its best)")]


def translate(
    model: ModelArgument,
    input_path: Annotated[
        Path | None, typer.Option("--input", help="text file, plain or .gz; standard input if not given")
    ] = None,
    output_path: Annotated[
        Path | None, typer.Option("--output", help="file to write; standard output if not given")
    ] = None,
) -> None:
    """Translate line by line. An empty line stays empty; n lines in are n lines out.

    A line that is too long for the model is split at sentence ends; where that is not enough, a note on standard
    error names the line.

    Example: echo "A man sleeps." | transformer translate runs/first
    """
    if input_path is not None and output_path is not None and input_path.resolve() == output_path.resolve():
        raise DataError(f"{input_path} is both input and output; choose another output file")

    from transformer.loading import load  # loads torch

    translator = load(model)
    chunk_lines = 1 if input_path is None and sys.stdin.isatty() else 1024
    with _output(output_path) as sink:
        for number, translation in enumerate(translator.stream(_progress(_lines(input_path)), chunk_lines), start=1):
            sink.write(translation.text.encode() + b"\n")
            for flag in translation.flags:
                print(f"line {number}: {flag}", file=sys.stderr)
            if chunk_lines == 1:
                sink.flush()


def _lines(path: Path | None) -> Iterator[str]:
    from transformer.text.lines import decode_lines, read_lines

    return decode_lines(sys.stdin.buffer, "standard input") if path is None else read_lines(path)


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


def _progress(lines: Iterator[str]) -> Iterator[str]:
    """Passes lines on; on a terminal whose standard output is not the same one, shows how many were read."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield from lines
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.completed} lines"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        for line in lines:
            yield line
            bar.advance(task)
