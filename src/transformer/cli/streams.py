"""Standard streams that are always open, even if the program was started without them."""

import errno
import io
import os
import sys
from typing import Final

LOST: Final = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO}
"""Errors of output that can no longer be written: no reader, no disk space, no terminal."""


class LossyStderr(io.TextIOWrapper):
    """Standard error that drops output if its reader has exited or the disk is full, so that the work continues."""

    def write(self, text: str, /) -> int:
        """Same as for a file, but drops output that cannot be written."""
        try:
            return super().write(text)
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
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, self.fileno())
        os.close(devnull)


def open_streams() -> None:
    """Opens closed standard streams, tolerates lost readers of standard error, and makes any file name printable.

    Otherwise, a file that is opened while descriptor 1 or 2 is free would receive the printed output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # uses the lowest free descriptor, which is `number`
        if getattr(sys, name) is None:
            opened = open(number, "w" if number else "r", encoding="utf-8")  # noqa: SIM115, PTH123
            setattr(sys, name, opened)
            setattr(sys, f"__{name}__", opened)  # keeps it open if `sys` gets another stream
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is sys.__stderr__:  # leaves streams alone that a calling program has replaced
        sys.stderr = LossyStderr(sys.stderr.buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)
