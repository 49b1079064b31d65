"""The checkpoints in a run folder: `RUN/checkpoints/step-00000100`, ordered by name.

No index file points to them. The newest complete checkpoint records the progress of the run and its best step, so the
loss of a single file never makes the other checkpoints unusable.
"""

import json
import math
import re
from pathlib import Path
from typing import Any, Final

from transformer.errors import BundleError, DamageError
from transformer.storage.verified_folder import FolderType, Manifest, VerifiedFolder

FOLDER: Final = "checkpoints"
MODEL: Final = "model"
AVERAGE: Final = "average"
RECORD: Final = "progress.json"
CHECKPOINT: Final = FolderType("checkpoint", DamageError, Manifest, format=1, depth=2)
NAME = re.compile(r"step-(\d{8,})")


def checkpoint_folder(run: Path, step: int) -> Path:
    """Returns the folder of the checkpoint of a step."""
    return run / FOLDER / f"step-{step:08d}"


def checkpoint_steps(run: Path) -> list[int]:
    """Returns the steps that have a checkpoint, complete or not, in order; symbolic links are ignored."""
    if not (run / FOLDER).is_dir():
        return []
    names = (path.name for path in (run / FOLDER).iterdir() if path.is_dir() and not path.is_symlink())
    return sorted(int(match[1]) for match in map(NAME.fullmatch, names) if match)


def read_record(checkpoint: VerifiedFolder[Manifest]) -> dict[str, Any]:
    """Reads a checkpoint's record of the run.

    Raises:
        DamageError: The record is changed, missing or malformed.
    """
    try:
        record = json.loads(checkpoint.read(RECORD))
    except (ValueError, RecursionError) as error:
        raise DamageError(f"{checkpoint.folder / RECORD} is not JSON; do not use this checkpoint") from error
    if not isinstance(record, dict) or not isinstance(record.get("progress"), dict):
        raise DamageError(f"{checkpoint.folder / RECORD} has no entry 'progress'; do not use this checkpoint")
    return record


def resolve_model(path: Path) -> Path:
    """Returns the model folder for a path: the path itself, the model of a checkpoint, or the best model of a run.

    The best model of a run is the checkpoint average in `RUN/average` if it validated better than every checkpoint.

    Raises:
        BundleError: The path does not exist, or its run has no usable model.
    """
    if not path.exists():
        raise BundleError(f"{path} does not exist; give a bundle or a run folder")
    if (path / RECORD).is_file():
        return path / MODEL
    if not (path / FOLDER).is_dir():
        return path
    reason = "it has no checkpoint yet"
    for step in reversed(checkpoint_steps(path)):
        try:
            progress = read_record(VerifiedFolder(checkpoint_folder(path, step), CHECKPOINT))["progress"]
            best = progress["best_step"]
            if _average_score(path) > (-math.inf if best is None else float(progress["best_score"])):
                return path / AVERAGE
            return checkpoint_folder(path, step if best is None else int(best)) / MODEL
        except (DamageError, KeyError, TypeError, ValueError) as error:
            reason = str(error)
    raise BundleError(f"{path} has no model: {reason}")


def _average_score(run: Path) -> float:
    """Returns the validation score of a run's checkpoint average (higher is better), or minus infinity if unknown."""
    try:
        provenance = json.loads((run / AVERAGE / "provenance.json").read_text(encoding="utf-8"))
        return float(provenance["validation"]["score"])
    except (OSError, KeyError, TypeError, ValueError):
        return -math.inf
