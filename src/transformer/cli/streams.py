"""Standard streams that are always open, even if the program was started without them."""

import errno
import fcntl
import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import typer

from transformer.errors import TERMINAL_ESCAPES, OutputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LOST: Final = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Errors of output that can no longer be written: no reader, no disk space, a size limit, no terminal."""


class StandardOutput(io.BufferedWriter):
    """Standard output whose errors name it, and that ends the command if its reader has exited (`| head`).

    The file below the buffer is a plain one: if Ctrl-C interrupted a `write` in Python after the system call, the
    buffer would not learn how much was written, and would write it again.
    """

    def __init__(self) -> None:
        super().__init__(io.FileIO(1, "w", closefd=False))

    def write(self, data: "ReadableBuffer", /) -> int:
        """Same as `io.BufferedWriter.write`.

        Raises:
            OutputError: The data cannot be written.
            typer.Exit: The reader has exited, which is not an error.
        """
        with _standard_output_errors():
            return super().write(data)

    def flush(self) -> None:
        """Same as `io.BufferedWriter.flush`; raises the errors of `write`."""
        with _standard_output_errors():
            super().flush()


@contextmanager
def _standard_output_errors() -> Generator[None]:
    """Reports `OSError`s as errors of standard output.

    Raises:
        OutputError: The block raised an `OSError`.
        typer.Exit: The reader has exited, which is not an error.
    """
    try:
        yield
    except BrokenPipeError as error:
        _discard(1)
        raise typer.Exit(0) from error
    except OSError as error:
        reason = "it is closed" if error.errno == errno.EBADF else os.strerror(error.errno or errno.EIO)
        raise _output_error(reason) from error


class LossyStderr(io.TextIOWrapper):
    """Standard error that drops output if its reader has exited or the disk is full, so that the work continues.

    Whatever text a message quotes, it cannot send C1 commands to the terminal or change the direction of the line.
    """

    def write(self, text: str, /) -> int:
        """Same as for a file, but drops output that cannot be written."""
        try:
            super().write(text.translate(TERMINAL_ESCAPES))
            return len(text)
        except OSError as error:
            self._discard_output(error)
            return len(text)

    def flush(self) -> None:
        """Same as for a file, but drops output that cannot be written."""
        try:
            super().flush()
        except OSError as error:
            self._discard_output(error)

    def _discard_output(self, error: OSError) -> None:
        if error.errno not in LOST:
            raise error
        _discard(self.fileno())


def _discard(descriptor: int) -> None:
    """Makes a descriptor accept and drop everything."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, descriptor)
    os.close(devnull)


def _output_error(reason: str) -> OutputError:
    return OutputError(
        "standard output", reason, "redirect it to a file on a disk with free space, or name an output file"
    )


def check_standard_output() -> None:
    """Checks that standard output is open, before a command works on what it will print.

    Raises:
        OutputError: Standard output was closed when the program started.
    """
    with suppress(io.UnsupportedOperation):  # a calling program has replaced the stream
        if fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise _output_error("it is closed")


def flush_standard_output() -> None:
    """Flushes standard output; drops what cannot be written, which the interpreter would report again at its end."""
    try:
        sys.stdout.flush()
    except (OSError, OutputError, typer.Exit):
        _discard(1)


def open_streams() -> None:
    """Opens closed standard streams, tolerates lost readers of standard error, and makes any file name printable.

    Otherwise, a file that is opened while descriptor 1 or 2 is free would receive the printed output. A closed
    standard output is opened for reading alone, so that a command that prints fails.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)  # takes the lowest free one: `number`
        if getattr(sys, name) is None:
            opened = open(number, "w" if number else "r", encoding="utf-8")  # noqa: SIM115, PTH123
            setattr(sys, name, opened)
            setattr(sys, f"__{name}__", opened)  # keeps it open if `sys` gets another stream
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        sys.stdout = io.TextIOWrapper(
            StandardOutput(),
            sys.stdout.encoding,
            errors="backslashreplace",
            line_buffering=sys.stdout.line_buffering,
            write_through=sys.stdout.write_through,
        )
    if sys.stderr is sys.__stderr__:  # leaves streams alone that a calling program has replaced
        sys.stderr = LossyStderr(sys.stderr.buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)
