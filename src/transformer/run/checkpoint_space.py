"""The disk space that the checkpoints of a run take, known before its first step."""

from pathlib import Path
from typing import Final

from transformer.storage.checkpoint_paths import FOLDER
from transformer.storage.disk_space import check_space, describe_bytes, free_bytes
from transformer.training.config import TrainingSettings

FLOAT_BYTES: Final = 4
ADVICE: Final = "free disk space, or train in a folder on another disk (--run)"


def check_first_checkpoint(folder: Path, parameters: int, ema_decay: float | None) -> None:
    """Checks that a checkpoint fits on the disk of a run.

    Args:
        folder: Run folder.
        parameters: Number of parameters of the model, at least.
        ema_decay: Decay of the running mean of the parameters, if there is one.

    Raises:
        OutputError: Not even one checkpoint fits.
    """
    check_space(folder, checkpoint_bytes(parameters, ema_decay), "a checkpoint", ADVICE)


def checkpoint_bytes(parameters: int, ema_decay: float | None) -> int:
    """Returns the bytes of a checkpoint: parameters, both moments of Adam, and the running mean if there is one."""
    return FLOAT_BYTES * parameters * (4 if ema_decay else 3)


def kept_bytes(parameters: int, settings: TrainingSettings) -> int:
    """Returns the most bytes that the checkpoints of a run take together.

    They are the last ones, the best one, those to be averaged, the one that is being written, and the average.
    """
    average = FLOAT_BYTES * parameters if settings.n_averaged else 0
    return (settings.keep_last + settings.n_averaged + 2) * checkpoint_bytes(parameters, settings.ema_decay) + average


def describe_space(folder: Path, parameters: int, settings: TrainingSettings) -> tuple[str, str | None]:
    """Returns the sizes of the checkpoints, and a warning if not all that a run keeps will fit.

    Args:
        folder: Run folder; checkpoints of an earlier start in it need no further space.
        parameters: Number of parameters of the model.
        settings: Settings of the training.
    """
    one, most = checkpoint_bytes(parameters, settings.ema_decay), kept_bytes(parameters, settings)
    text, free = f"{describe_bytes(one)} each, at most {describe_bytes(most)} together", free_bytes(folder)
    if free is None:
        return text, None
    text = f"{text}; {describe_bytes(free)} are free"
    stored = sum(path.stat().st_size for path in (folder / FOLDER).rglob("*") if path.is_file())
    if free + stored >= most:
        return text, None
    return text, (
        f"warning: {folder}: the checkpoints take up to {describe_bytes(most)}, but {describe_bytes(free)} are free; "
        "free disk space, or keep fewer (training.keep_last, average_last, average_best)"
    )
