"""Standard streams that are always open, whatever the program was started with."""

import errno
import io
import os
import sys
from typing import Final

LOST: Final = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO}
"""Errors that mean that output is lost: no reader, no disk space, no terminal."""


class LossyStderr(io.TextIOWrapper):
    """Standard error that drops output if its reader has left or the disk is full, so that the work continues."""

    def write(self, text: str, /) -> int:
        """Same as for a file, but drops output that cannot be written."""
        try:
            return super().write(text)
        except OSError as error:
            self._leave(error)
            return len(text)

    def flush(self) -> None:
        """Same as for a file, but drops output that cannot be written."""
        try:
            super().flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        if error.errno not in LOST:
            raise error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def open_streams() -> None:
    """Opens standard streams that are closed, lets readers of standard error leave, and prints any name of a file.

    A file that is opened while descriptor 1 or 2 is free would get what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            opened = open(number, "w" if number else "r", encoding="utf-8")  # noqa: SIM115, PTH123
            setattr(sys, name, opened)
            setattr(sys, f"__{name}__", opened)  # which keeps it open where another takes its place
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is sys.__stderr__:  # not those of a program that runs this one
        sys.stderr = LossyStderr(sys.stderr.buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)
