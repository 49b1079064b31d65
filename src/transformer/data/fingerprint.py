"""Checksums of the input files of a run, to detect texts that have changed."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from transformer.data.config import DataConfig, as_list
from transformer.errors import DataError


class FileSnapshot:
    """Sizes and modification times of files, recorded before reading, to detect files that change meanwhile."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._snapshot = {path: _size_and_mtime(path) for path in paths}

    def check_unchanged(self) -> None:
        """Compares the recorded values with the current ones.

        Raises:
            DataError: a file was changed.
        """
        for path, stamp in self._snapshot.items():
            if _size_and_mtime(path) != stamp:
                raise DataError(f"{path} was changed while it was prepared; start again when it stays as it is")


def _size_and_mtime(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


TEXT_KEYS = ("source", "target", "file")
"""Keys of the training text of a table `[[data.pairs]]`."""
INPUT_KEYS = ("source", "target", "pairs", "validation_source", "validation_target")


def fingerprint_inputs(settings: DataConfig) -> dict[str, str]:
    """Returns the SHA-256 of each training and validation text by its recipe key, e.g. `data.source`.

    The checksum of a list of files is the checksum of their checksums.

    Raises:
        DataError: a file cannot be read.
    """
    paths_by_key = {key: getattr(settings, key) for key in INPUT_KEYS}
    for stage in settings.stages or ():
        for key in ("validation_source", "validation_target"):
            paths_by_key[f"stages.{stage.name}.{key}"] = getattr(stage, key)
    if tables := settings.language_pairs:
        texts = [path for table in tables for key in TEXT_KEYS for path in as_list(getattr(table, key))]
        paths_by_key["pairs"] = tuple(texts)
        for key in INPUT_KEYS[-2:]:
            paths_by_key[key] = tuple(path for table in tables for path in as_list(getattr(table, key))) or None
    return {f"data.{key}": combined_checksum(paths) for key, paths in paths_by_key.items() if paths is not None}


def file_checksum(path: Path) -> str:
    """Returns the SHA-256 of the bytes of a file.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        hint = "" if str(path).isprintable() else " (in a recipe, write a path with backslashes between single quotes)"
        raise DataError(f"{path}: {error.strerror}; give a file that can be read{hint}") from error


def fingerprint_of(facts: Mapping[str, object]) -> str:
    """Returns a short hash of JSON values; equal values have equal fingerprints."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def combined_checksum(paths: str | tuple[str, ...]) -> str:
    """Returns the checksum of a file, or the checksum of the checksums of a list of files.

    Raises:
        DataError: a file cannot be read.
    """
    if isinstance(paths, str):
        return file_checksum(Path(paths))
    return hashlib.sha256("\n".join(file_checksum(Path(path)) for path in paths).encode()).hexdigest()
