"""The checkpoints in a run folder: `RUN/checkpoints/step-00000100`, whose names tell the order.

No file points to them. The newest one that is whole says where the run stands and which step is the best; so there is
no file whose loss would lose the others.
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
    """Where the checkpoint of a step lies."""
    return run / FOLDER / f"step-{step:08d}"


def checkpoint_steps(run: Path) -> list[int]:
    """The steps of which there is a checkpoint, whole or not, in order; links are not looked at."""
    if not (run / FOLDER).is_dir():
        return []
    names = (path.name for path in (run / FOLDER).iterdir() if path.is_dir() and not path.is_symlink())
    return sorted(int(match[1]) for match in map(NAME.fullmatch, names) if match)


def read_record(checkpoint: VerifiedFolder[Manifest]) -> dict[str, Any]:
    """What a checkpoint says about the run.

    Raises:
        DamageError: it is changed, missing or nonsense.
    """
    try:
        record = json.loads(checkpoint.read(RECORD))
    except (ValueError, RecursionError) as error:
        raise DamageError(f"{checkpoint.folder / RECORD} is not JSON; do not use this checkpoint") from error
    if not isinstance(record, dict) or not isinstance(record.get("progress"), dict):
        raise DamageError(f"{checkpoint.folder / RECORD} has no entry 'progress'; do not use this checkpoint")
    return record


def resolve_model(path: Path) -> Path:
    """The bundle itself, that of a checkpoint, or the best one of a run folder.

    That is the average of checkpoints in `RUN/average` where it validated better than every one of them.

    Raises:
        BundleError: the path does not exist, or its run has no model that can be used.
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
    """What the average of a run scored, higher is better; minus infinity where there is none that tells."""
    try:
        provenance = json.loads((run / AVERAGE / "provenance.json").read_text(encoding="utf-8"))
        return float(provenance["validation"]["score"])
    except (OSError, KeyError, TypeError, ValueError):
        return -math.inf
