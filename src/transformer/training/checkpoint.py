"""The run folder: checkpoints that appear whole or not at all, and a pointer to the best and the last."""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from transformer.errors import CheckpointError

POINTER, OPTIMIZER = "run.json", "optimizer.safetensors"
OURS = re.compile(r"(\.writing-)?step-\d{8}")


@dataclass
class Progress:
    """What a run has reached.

    Attributes:
        step: updates done.
        best_step: step of the best validation so far.
        best_score: its score, higher is better; None before the first.
        stale: validations since the best.
        scores: figures of the last validation.
        scored_step: step of the last validation.
        best_scores: figures of the best validation.
        seconds: training time so far, over all starts.
        finished: why the run ended: "max_steps", "patience"; None while it can go on.
    """

    step: int = 0
    best_step: int | None = None
    best_score: float | None = None
    stale: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    scored_step: int | None = None
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
        temporary = folder.with_name(f".writing-{folder.name}")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write_model(temporary / "model")
        save_file(_optimizer_tensors(optimizer), temporary / OPTIMIZER)
        _sync(temporary / OPTIMIZER)
        _sync(temporary)
        if folder.exists():  # left by a run that was killed before it pointed here
            shutil.rmtree(folder)
        temporary.rename(folder)
        replace_text(self.run / POINTER, json.dumps(asdict(progress), indent=2))
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
        """Restores what Adam remembers.

        Raises:
            CheckpointError: the file is missing, damaged, or of another model.
        """
        path = self._path(step) / OPTIMIZER
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path}: {error}; start the run anew in another folder") from error
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            index, key = name.split(".")
            state.setdefault(int(index), {})[key] = tensor
        groups = optimizer.state_dict()["param_groups"]
        if sorted(state) != sorted(index for group in groups for index in group["params"]):
            raise CheckpointError(f"{path}: not of this model's parameters; start the run anew in another folder")
        optimizer.load_state_dict({"state": state, "param_groups": groups})

    def model(self, step: int) -> Path:
        """The bundle of a step."""
        return self._path(step) / "model"

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _prune(self, kept_steps: set[int | None]) -> None:
        kept = {self._path(step) for step in kept_steps if step is not None}
        for folder in self.folder.iterdir():
            if folder not in kept and OURS.fullmatch(folder.name):
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def lock_run(run: Path) -> Generator[None]:
    """Makes the run folder and holds it for this process.

    Raises:
        CheckpointError: another process holds it, or it holds checkpoints without a pointer to them.
    """
    run.mkdir(parents=True, exist_ok=True)
    if not (run / POINTER).exists() and any((run / "checkpoints").glob("step-*")):
        raise CheckpointError(f"{run} holds checkpoints, but no {POINTER}; choose another folder, or remove them")
    with (run / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CheckpointError(f"{run} is in use by another training process; choose another folder") from error
        yield


def replace_text(path: Path, text: str) -> None:
    """Writes a file that is either the old or the new one, whole, at any moment."""
    temporary = path.with_name(f".writing-{path.name}")
    temporary.write_text(text, encoding="utf-8")
    _sync(temporary)
    temporary.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Waits until a file or a folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{index}.{key}": tensor for index, values in state.items() for key, tensor in values.items()}
