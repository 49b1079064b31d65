"""What the input files of a run hold, as sums: to tell whether a text has changed since."""

import hashlib
from pathlib import Path

from transformer.data.settings import DataSettings
from transformer.errors import DataError

INPUTS = ("source", "target", "validation_source", "validation_target")


def fingerprint_inputs(settings: DataSettings) -> dict[str, str]:
    """The SHA-256 of the bytes of every text that a run learns from or is judged by: `data.source` -> sum, and so on.

    Raises:
        DataError: a file cannot be read.
    """
    paths = {key: getattr(settings, key) for key in INPUTS}
    return {f"data.{key}": _sha256(Path(path)) for key, path in paths.items() if path is not None}


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a file that can be read") from error
