"""Checks of the free disk space before work whose results would not fit."""

import os
import shutil
from pathlib import Path
from typing import Final

from transformer.errors import OutputError
from transformer.storage.atomic import FOLDER_ADVICE

UNITS: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def free_bytes(path: Path) -> int | None:
    """Returns the free bytes of the disk that a path is on, or will be; None if the system cannot tell."""
    real = Path(os.path.realpath(path))
    try:
        nearest = next(folder for folder in (real, *real.parents) if folder.exists())
        return shutil.disk_usage(nearest).free
    except OSError:
        return None


def check_space(path: Path, n_bytes: int, what: str, advice: str = FOLDER_ADVICE) -> None:
    """Checks that a file or folder fits on its disk; passes if the system cannot tell.

    Args:
        path: Path to be written.
        n_bytes: Bytes that it takes at least.
        what: Noun phrase for what takes them, e.g. "a checkpoint".
        advice: What the user can do.

    Raises:
        OutputError: The disk has fewer bytes left.
    """
    free = free_bytes(path)
    if free is not None and free < n_bytes:
        raise OutputError(path, f"{what} takes {describe_bytes(n_bytes)}, but {describe_bytes(free)} are free", advice)


def describe_bytes(n_bytes: float) -> str:
    """Returns a number of bytes in the largest unit that fits, e.g. `17.3 MB`."""
    for size, unit in UNITS:
        if n_bytes >= size:
            return f"{n_bytes / size:,.1f} {unit}"
    return f"{n_bytes:.0f} bytes"
