"""Checkpoints that appear whole or not at all: the last ones, and the best."""

import json
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from transformer.errors import CheckpointError, DamageError
from transformer.storage.atomic import sync
from transformer.storage.checkpoints import (
    CHECKPOINT,
    FOLDER,
    MODEL,
    RECORD,
    checkpoint_folder,
    checkpoint_steps,
    read_record,
)
from transformer.storage.tensor_files import load_tensors
from transformer.storage.verified_folder import Manifest, VerifiedFolder, write_sealed
from transformer.training.monitoring.progress import Progress

LEFTOVER = re.compile(r"\.(writing|removing)-step-\d{8,}(-\d+)?")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose every byte was checked.

    Attributes:
        progress: what the run had reached.
        metadata: what else the run said of itself.
        verified: its folder.
    """

    progress: Progress
    metadata: dict[str, Any]
    verified: VerifiedFolder[Manifest]

    @property
    def model(self) -> Path:
        """The bundle in it."""
        return self.verified.folder / MODEL

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors saved under a name.

        Raises:
            CheckpointError: there are none, or the file is not one of tensors.
        """
        path = self.verified.checked(f"{name}.safetensors")
        try:
            return load_tensors(path)
        except SafetensorError as error:
            raise CheckpointError(f"{path}: {error}; do not use this checkpoint") from error


class CheckpointManager:
    """The checkpoints of one run, written by one process.

    Args:
        run: folder of the run.
        keep_last: how many to keep, besides the best of each.
        optional_files: files that a checkpoint counts as whole without.
    """

    def __init__(self, run: Path, keep_last: int = 2, optional_files: Collection[str] = ()) -> None:
        self.run = run
        self.damaged: dict[int, str] = {}
        self._keep_last = keep_last
        self._may_lack = optional_files

    def save(
        self,
        progress: Progress,
        metadata: Mapping[str, Any],
        write_model: Callable[[Path], None],
        tensors: Mapping[str, dict[str, Tensor]],
    ) -> None:
        """Writes a checkpoint, and then removes those that are no longer needed.

        Args:
            progress: of this moment.
            metadata: Further facts about the run, as JSON values.
            write_model: writes the bundle into the folder it is given.
            tensors: file name without suffix -> what goes into it, e.g. the optimizer's.

        Raises:
            CheckpointError: the disk is full or cannot be written; the earlier checkpoints are as they were.
        """

        def fill(folder: Path) -> None:
            write_model(folder / MODEL)
            for name, content in tensors.items():
                save_file(content, folder / f"{name}.safetensors")
            record = {"progress": progress.to_json(), **metadata}
            (folder / RECORD).write_text(json.dumps(record, indent=2, ensure_ascii=False), encoding="utf-8")

        folder = self.folder(progress.step)
        try:
            self._make_room(folder)
            write_sealed(folder, CHECKPOINT, {}, fill)
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise CheckpointError(
                f"{folder} could not be written: {reason}; the checkpoints before it are whole; make room, and the "
                "same command goes on from them"
            ) from error
        self.damaged.pop(progress.step, None)
        self.remove_obsolete(progress)
        for step in self.damaged:  # what they held has now been done again, or is older than what is kept
            self._remove(self.folder(step))
        self.damaged.clear()

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; what was wrong with later ones is noted in `damaged`.

        Raises:
            CheckpointError: there are checkpoints, but none is whole.
        """
        for step in reversed(checkpoint_steps(self.run)):
            try:
                return self._open(step)
            except DamageError as error:
                self.damaged[step] = str(error)
        if self.damaged:
            reasons = "; ".join(self.damaged.values())
            raise CheckpointError(f"{self.run} has no checkpoint that is whole ({reasons}); start anew with --fresh")
        return None

    def is_intact(self, step: int) -> bool:
        """Whether there is a checkpoint of that step with every byte in place; if not, `damaged` says why."""
        try:
            self._open(step)
        except DamageError as error:
            self.damaged[step] = str(error)
            return False
        return True

    def folder(self, step: int) -> Path:
        """Where the checkpoint of a step lies."""
        return checkpoint_folder(self.run, step)

    def _open(self, step: int) -> Checkpoint:
        verified = VerifiedFolder(self.folder(step), CHECKPOINT)
        verified.check_all(self._may_lack)
        metadata = read_record(verified)
        return Checkpoint(Progress.from_json(metadata.pop("progress")), metadata, verified)

    def remove_obsolete(self, progress: Progress) -> None:
        """Removes what a killed process left half-written, and the checkpoints that are no longer needed.

        Needed are the last ones that are whole, and those that each of them names; a damaged one is not touched.
        """
        self._clear_leftovers()
        steps = [step for step in checkpoint_steps(self.run) if step not in self.damaged]
        last = steps[-self._keep_last :]
        kept = {*last, *progress.needed_steps}
        for step in last:
            kept |= self._needed_by(step)
        for step in steps:
            if step not in kept:
                self._remove(self.folder(step))

    def _clear_leftovers(self) -> None:
        for path in (self.run / FOLDER).iterdir():
            if LEFTOVER.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)

    def _make_room(self, folder: Path) -> None:
        """Makes the folder of checkpoints, and clears leftovers and a damaged one of the same step."""
        if not folder.parent.is_dir():
            folder.parent.mkdir(parents=True)
            sync(self.run)
        self._clear_leftovers()
        if folder.exists():
            self._remove(folder)

    def _needed_by(self, step: int) -> set[int]:
        try:
            record = read_record(VerifiedFolder(self.folder(step), CHECKPOINT))
            return Progress.from_json(record["progress"]).needed_steps
        except DamageError:
            return set()

    def _remove(self, folder: Path) -> None:
        """Takes the name away first, so that no half-removed folder is ever met under it."""
        leaving = folder.with_name(f".removing-{folder.name}")
        shutil.rmtree(leaving, ignore_errors=True)
        if folder.is_dir():
            folder.rename(leaving)
            shutil.rmtree(leaving, ignore_errors=True)
