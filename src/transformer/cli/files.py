"""Checks of the files that a command reads and writes, before it starts to work."""

import errno
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from transformer.errors import BundleError, DataError, OutputError
from transformer.storage.atomic import FILE_ADVICE, FOLDER_ADVICE


def check_files(inputs: Sequence[Path | None], outputs: Sequence[Path | None] = ()) -> None:
    """Checks that inputs can be read and outputs written, and that no input or output is written twice.

    Args:
        inputs: Input files; None is standard input.
        outputs: Output files; None is ignored.

    Raises:
        DataError: An input is missing or a folder, or two paths lead to the same file.
        OutputError: An output cannot be written.
    """
    for path in inputs:
        if path is not None:
            check_readable(path)
    _refuse_same_files(inputs, outputs)
    for path in outputs:
        if path is not None:
            _check_writable(path)


def check_readable(path: Path, *, may_be_folder: bool = False) -> None:
    """Checks that a file can be read; pipes are not opened.

    Raises:
        DataError: The file is missing, a folder, or may not be read.
    """
    code = 0
    try:
        if stat.S_ISDIR(path.stat().st_mode) and not may_be_folder:
            code = errno.EISDIR
        elif not os.access(path, os.R_OK):
            code = errno.EACCES
    except OSError as error:
        code = error.errno or errno.EIO
    if code:
        raise DataError(f"{path}: {os.strerror(code)}; check the path")


def check_image_file(path: Path) -> None:
    """Checks that a file is a supported image; pipes, which can be read only once, are not opened.

    Raises:
        ConfigError: Pillow is not installed.
        DataError: The file is missing, a folder, may not be read, or is not an image.
    """
    from transformer.data.images import check_image  # loads torch

    check_readable(path)
    if path.is_file():
        check_image(path)


def check_new_folder(path: Path, *, may_be_used: bool = False) -> None:
    """Checks that a folder can be written.

    Args:
        path: Path of the folder.
        may_be_used: Whether the folder may hold files already.

    Raises:
        BundleError: The folder is not empty.
        OutputError: The folder cannot be created or written.
    """
    if path.is_dir() and not may_be_used and any(path.iterdir()):
        raise BundleError(f"{path} is not empty; choose another folder, or remove it first")
    nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise OutputError(path, os.strerror(errno.ENOTDIR), FOLDER_ADVICE)
    if not os.access(nearest, os.W_OK):
        raise OutputError(path, os.strerror(errno.EACCES), FOLDER_ADVICE)


def check_uncompressed(path: Path) -> None:
    """Checks that the name of an output does not ask for compression.

    Raises:
        DataError: It does.
    """
    from transformer.text.lines import COMPRESSIONS

    if path.suffix in COMPRESSIONS:
        raise DataError(f"{path}: output cannot be compressed; leave out {path.suffix}")


def _check_writable(path: Path) -> None:
    """Checks that a file can be written; it is neither opened nor created.

    Raises:
        DataError: The name asks for compression.
        OutputError: The file cannot be written.
    """
    check_uncompressed(path)
    parent = Path(os.path.realpath(path)).parent
    if path.is_dir():
        raise OutputError(path, os.strerror(errno.EISDIR), FILE_ADVICE)
    if not parent.is_dir():
        raise OutputError(path, os.strerror(errno.ENOTDIR if parent.exists() else errno.ENOENT), FILE_ADVICE)
    if not os.access(path if path.exists() else parent, os.W_OK):
        raise OutputError(path, os.strerror(errno.EACCES), FILE_ADVICE)


def _refuse_same_files(inputs: Sequence[Path | None], outputs: Sequence[Path | None]) -> None:
    """Refuses to overwrite an input, or to write two outputs to one file.

    Raises:
        DataError: Two paths lead to the same file.
    """
    read = {_identity(path) for path in inputs}
    written: set[object] = set()
    for path in outputs:
        if path is not None and _identity(path) in read:
            raise DataError(f"{path} is both input and output; choose another output file")
        if path is not None and _identity(path) in written:
            raise DataError(f"{path} is used for two outputs; choose another file")
        written |= {_identity(path)} if path is not None else set()


def _identity(path: Path | None) -> object:
    """Returns a key that is equal for two paths of one regular file; pipes and devices equal no other path."""
    try:
        status = path.stat() if path else os.fstat(sys.stdin.fileno())
    except (OSError, ValueError):  # does not exist yet, or standard input is closed
        return path.resolve() if path else object()
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else object()
