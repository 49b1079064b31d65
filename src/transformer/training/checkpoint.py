"""The run folder: checkpoints that appear whole or not at all, and a pointer to the best and the last."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from transformer.errors import CheckpointError

POINTER = "run.json"


@dataclass
class Progress:
    """What a run has reached.

    Attributes:
        step: updates done.
        best_step: step of the best validation so far.
        best_score: its score, higher is better; None before the first.
        stale: validations since the best.
        scores: figures of the last validation.
        best_scores: figures of the best validation.
        seconds: training time so far, over all starts.
        finished: why the run ended: "max_steps", "patience"; None while it can go on.
    """

    step: int = 0
    best_step: int | None = None
    best_score: float | None = None
    stale: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    best_scores: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    finished: str | None = None


class Checkpoints:
    """Keeps the best and the last checkpoint of a run: `checkpoints/step-N`, named by `run.json`.

    A checkpoint is written under a temporary name, renamed when complete, and only then named in the pointer, which
    is replaced in one move; so the pointer always names complete ones.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / "checkpoints"

    def save(self, progress: Progress, write_model: Callable[[Path], None], optimizer: torch.optim.Optimizer) -> None:
        """Writes a checkpoint of this step, points to it, and removes those no longer pointed to."""
        folder = self._path(progress.step)
        if not folder.exists():
            temporary = self.folder / f".writing-{folder.name}"
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            write_model(temporary / "model")
            save_file(_optimizer_tensors(optimizer), temporary / "optimizer.safetensors")
            temporary.rename(folder)
        self._point(progress)
        self._prune({progress.step, progress.best_step})

    def progress(self) -> Progress | None:
        """Where the run stands, or None where it has no checkpoint.

        Raises:
            CheckpointError: the pointer is damaged.
        """
        pointer = self.run / POINTER
        if not pointer.exists():
            return None
        try:
            return Progress(**json.loads(pointer.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"{pointer}: damaged ({error}); remove it to start the run anew") from error

    def load_optimizer(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Restores what Adam remembers."""
        tensors = load_file(self._path(step) / "optimizer.safetensors")
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            index, key = name.split(".")
            state.setdefault(int(index), {})[key] = tensor
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

    def model(self, step: int) -> Path:
        """The bundle of a step."""
        return self._path(step) / "model"

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _point(self, progress: Progress) -> None:
        temporary = self.run / f".{POINTER}"
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(asdict(progress), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.run / POINTER)

    def _prune(self, kept_steps: set[int | None]) -> None:
        kept = {self._path(step) for step in kept_steps if step is not None}
        for folder in self.folder.iterdir():
            if folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{index}.{key}": tensor for index, values in state.items() for key, tensor in values.items()}
