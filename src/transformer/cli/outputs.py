"""Output files and standard output of commands."""

import io
import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from transformer.cli.files import check_uncompressed
from transformer.cli.streams import check_standard_output
from transformer.errors import OutputError
from transformer.storage.atomic import atomic_file, named_errors

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@contextmanager
def open_output(path: Path | None, *, whole: bool = False) -> Generator[BinaryIO]:
    """Opens an output file, or standard output for None, before the work starts.

    A reader of standard output that exits early (`| head`) ends the command without an error. An existing file is
    unchanged if the command fails before it writes.

    Args:
        path: Path of the file.
        whole: Whether the file is of no use until it is complete. Otherwise, lines appear under the final name as they
            are written, and what an interrupted command leaves is a prefix.

    Raises:
        DataError: The name asks for compression.
        OutputError: The output cannot be written.
    """
    if path is None:
        yield from _standard_output()
        return
    check_uncompressed(path)
    if whole and _is_replaceable(path):
        with atomic_file(path) as file:
            yield file
    else:
        yield from _growing_file(path)


def _standard_output() -> Generator[BinaryIO]:
    check_standard_output()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


def _is_replaceable(path: Path) -> bool:
    """Whether a file can be replaced: not a pipe, a device, or a file in a folder that cannot be written.

    A file that does not exist counts as replaceable.
    """
    return not path.exists() or (path.is_file() and os.access(Path(os.path.realpath(path)).parent, os.W_OK))


def _growing_file(path: Path) -> Generator[BinaryIO]:
    with named_errors(path):
        growing = LazyTruncateFile(path)
    try:
        with growing as file:
            yield file
            file.begin()  # empty output must replace the old content too
    finally:
        growing.remove_if_unwritten()


class LazyTruncateFile(io.BufferedWriter):
    """An output file that keeps its old content until the first write.

    If the disk is full, what was written is renamed to `NAME.incomplete`, so that it is not mistaken for the result.
    The file below the buffer is a plain one, for the reason given at `StandardOutput`.
    """

    def __init__(self, path: Path) -> None:
        self._shown_path, self._path = path, Path(os.path.realpath(path))
        self._is_new, self._is_truncated = not path.exists(), False
        super().__init__(io.FileIO(path, "w", opener=lambda name, _: os.open(name, os.O_WRONLY | os.O_CREAT, 0o666)))

    def begin(self) -> None:
        """Truncates the file once, if it is a regular file."""
        if not self._is_truncated and self._is_regular():
            self.raw.truncate(0)
        self._is_truncated = True

    def write(self, data: "ReadableBuffer", /) -> int:
        """Same as `io.BufferedWriter.write`, but truncates the file first.

        Raises:
            OutputError: The data cannot be written.
        """
        self.begin()
        with self._named_errors():
            return super().write(data)

    def flush(self) -> None:
        """Same as `io.BufferedWriter.flush`.

        Raises:
            OutputError: The data cannot be written.
        """
        with self._named_errors():
            super().flush()

    @contextmanager
    def _named_errors(self) -> Generator[None]:
        try:
            with named_errors(self._shown_path):
                yield
        except OutputError:
            self._set_aside()
            raise

    def remove_if_unwritten(self) -> None:
        """Removes the file if it is new and nothing was written."""
        if self._is_new and not self._is_truncated:
            self._path.unlink(missing_ok=True)

    def _is_regular(self) -> bool:
        return stat.S_ISREG(os.fstat(self.fileno()).st_mode)

    def _set_aside(self) -> None:
        if self._is_regular() and self._path.exists():
            if os.fstat(self.fileno()).st_size:
                self._path.replace(self._path.with_name(f"{self._path.name}.incomplete"))
            else:
                self._path.unlink()
