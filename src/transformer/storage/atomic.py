"""Atomic writes: a file or folder appears under its name when it is complete and on disk, or not at all."""

import errno
import io
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final
from zlib import crc32

from transformer.errors import OutputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Errors of a file system, a user or a process that may write no more."""
FILE_ADVICE: Final = "choose another output file"
FOLDER_ADVICE: Final = "free disk space, or choose another folder"
MAX_NAME_BYTES: Final = 255
NO_KERNEL_COPY: Final = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ETXTBSY}
"""Errors of file systems between which the kernel does not copy."""
COPY_BYTES: Final = 1 << 20
MAX_COPY_BYTES: Final = 1 << 30
"""Number of bytes that the kernel copies at a time."""


def sync(path: Path) -> None:
    """Waits until a file, or the directory entries of a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Waits until a folder and everything below it are on disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


@contextmanager
def named_errors(path: Path, advice: str = FILE_ADVICE) -> Generator[None]:
    """Reports errors of the operating system with the path that was to be written.

    Raises:
        OutputError: The block raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise output_error(path, error, advice) from error


def output_error(path: Path, error: OSError, advice: str = FILE_ADVICE) -> OutputError:
    """Returns the error for a path that cannot be written, with the message of the operating system."""
    return OutputError(path, os.strerror(error.errno) if error.errno else "it cannot be written", advice)


class OutputFile(io.FileIO):
    """A file open for writing, whose errors name the path that users know.

    Args:
        path: Path to open, which may be a temporary one.
        flags: Flags of `os.open`, in addition to those for writing.
        name: Path for messages.
    """

    def __init__(self, path: Path, flags: int, name: Path) -> None:
        self.shown_path = name
        super().__init__(path, "w", opener=lambda raw, _: os.open(raw, os.O_WRONLY | flags, 0o666))

    def write(self, data: "ReadableBuffer", /) -> int | None:
        """Same as `io.FileIO.write`.

        Raises:
            OutputError: The data cannot be written, e.g. because the disk is full.
        """
        with named_errors(self.shown_path):
            return super().write(data)


@contextmanager
def atomic_file(path: Path) -> Generator[BinaryIO]:
    """Opens a file for an atomic write: it replaces the file of its name when the block ends without an error.

    A device such as /dev/null, or a pipe, is written to directly.

    Raises:
        OutputError: The file cannot be written; nothing has changed then.
    """
    final = Path(os.path.realpath(path))
    if final.exists() and not final.is_file() and not final.is_dir():
        with named_errors(path):
            raw = OutputFile(final, 0, path)
        with io.BufferedWriter(raw) as file:
            yield file
        return
    temporary = _temporary(final)
    try:
        with named_errors(path):
            raw = OutputFile(temporary, os.O_CREAT | os.O_TRUNC, path)
            if final.exists():
                os.chmod(raw.fileno(), final.stat().st_mode & 0o7777)  # noqa: PTH101
        with io.BufferedWriter(raw) as file:
            yield file
            file.flush()
            with named_errors(path):
                os.fsync(raw.fileno())
        with named_errors(path):
            temporary.replace(final)
            sync(final.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def append_file(path: Path, output: BinaryIO) -> int:
    """Appends the content of a file to one of `atomic_file`, and returns the number of bytes.

    The kernel copies it, or shares its blocks, where the file systems allow that. Then no byte passes through this
    process.

    Args:
        path: The file.
        output: File to append to, which is at its end.

    Raises:
        OSError: The file cannot be read.
        OutputError: The output cannot be written.
    """
    with path.open("rb") as file:
        raw = getattr(output, "raw", None)
        if isinstance(raw, OutputFile):
            output.flush()
            with named_errors(raw.shown_path):
                n_bytes = _copy_in_kernel(file.fileno(), raw.fileno())
            file.seek(n_bytes)
        shutil.copyfileobj(file, output, COPY_BYTES)  # what is left
        return file.tell()


def _copy_in_kernel(source: int, output: int) -> int:
    """Copies as much of a file as the file systems allow without a buffer, and returns the number of bytes."""
    n_bytes = 0
    copy = getattr(os, "copy_file_range", None)
    while copy is not None:
        try:
            copied = copy(source, output, MAX_COPY_BYTES)
        except OSError as error:
            if error.errno in NO_KERNEL_COPY:
                break
            raise
        n_bytes += copied
        if not copied:
            break
    return n_bytes


def replace_bytes(path: Path, content: bytes) -> None:
    """Writes a file atomically.

    Raises:
        OutputError: The file cannot be written; an older one is unchanged.
    """
    with atomic_file(path) as file:
        file.write(content)


def replace_text(path: Path, text: str) -> None:
    """Writes a text file atomically; see `replace_bytes`."""
    replace_bytes(path, text.encode())


@contextmanager
def atomic_folder(folder: Path) -> Generator[Path]:
    """Yields a temporary folder, which is renamed atomically to its final name when everything in it is on disk.

    If `folder` is an empty mount point, which cannot be replaced, the files are moved into it.

    Args:
        folder: Folder to write, which must not exist or must be empty.

    Raises:
        OutputError: The folder cannot be written; nothing remains of it.
    """
    final = Path(os.path.realpath(folder))
    is_mounted = os.path.ismount(final)
    temporary = final / _temporary(final).name if is_mounted else _temporary(final)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with named_errors(folder, FOLDER_ADVICE):
            temporary.mkdir(parents=True)
        try:
            yield temporary
        except OSError as error:  # leaves errors of input files alone
            if error.errno in NO_SPACE or _is_below(error.filename, temporary):
                raise output_error(folder, error, FOLDER_ADVICE) from error
            raise
        with named_errors(folder, FOLDER_ADVICE):
            sync_tree(temporary)
            if is_mounted:
                for path in sorted(temporary.iterdir()):
                    path.rename(final / path.name)
                temporary.rmdir()
            else:
                temporary.replace(final)
            sync(final if is_mounted else final.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


_NUMBERS = count()


def _temporary(path: Path) -> Path:
    """Returns the path of the temporary file or folder beside a path; a name that would be too long is shortened.

    It names the machine too: the processes of several containers, which may write the same file, often have one id. A
    number tells several writers of one process apart.
    """
    machine = crc32(os.uname().nodename.encode())
    before, after = ".writing-", f"-{machine:08x}-{os.getpid()}-{next(_NUMBERS)}"
    max_bytes = MAX_NAME_BYTES - len(before) - len(after)
    return path.with_name(f"{before}{os.fsdecode(os.fsencode(path.name)[:max_bytes])}{after}")


def _is_below(name: object, folder: Path) -> bool:
    return isinstance(name, str) and Path(name).is_relative_to(folder)
