"""What the input files of a run hold, as sums: to tell whether a text has changed since."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformer.data.config import DataConfig
from transformer.errors import DataError


class FileSnapshot:
    """Sizes and times of files, taken before they are read: to tell whether one changed meanwhile."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._stamps = {path: _stamp(path) for path in paths}

    def check_unchanged(self) -> None:
        """Compares them with what is there now.

        Raises:
            DataError: a file was changed.
        """
        for path, stamp in self._stamps.items():
            if _stamp(path) != stamp:
                raise DataError(f"{path} was changed while it was prepared; start again when it stays as it is")


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


INPUTS = ("source", "target", "pairs", "validation_source", "validation_target")


def fingerprint_inputs(settings: DataConfig) -> dict[str, str]:
    """The SHA-256 of the bytes of every text that a run learns from or is judged by: `data.source` -> sum, and so on.

    The sum of a list of files is that of their sums.

    Raises:
        DataError: a file cannot be read.
    """
    given = {key: getattr(settings, key) for key in INPUTS}
    return {f"data.{key}": combined_checksum(paths) for key, paths in given.items() if paths is not None}


def file_checksum(path: Path) -> str:
    """The SHA-256 of a file's bytes.

    Raises:
        DataError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a file that can be read") from error


def fingerprint_of(facts: dict[str, Any]) -> str:
    """A short name for values of JSON: equal for equal values."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def combined_checksum(paths: str | tuple[str, ...]) -> str:
    """The sum of a file, or of the sums of a list of files.

    Raises:
        DataError: one cannot be read.
    """
    if isinstance(paths, str):
        return file_checksum(Path(paths))
    return hashlib.sha256("\n".join(file_checksum(Path(path)) for path in paths).encode()).hexdigest()
