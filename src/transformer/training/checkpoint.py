"""Atomically written checkpoints: the last ones and the best."""

import json
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from transformer.errors import CheckpointError, DamageError, DataError, OutputError
from transformer.storage.atomic import sync
from transformer.storage.checkpoint_paths import (
    CHECKPOINT,
    FOLDER,
    MODEL,
    RECORD,
    checkpoint_folder,
    checkpoint_steps,
    read_record,
)
from transformer.storage.tensor_files import load_tensors, save_tensors
from transformer.storage.verified_folder import Manifest, VerifiedFolder, write_verified_folder
from transformer.training.monitoring.progress import Progress

LEFTOVER = re.compile(r"\.(writing|removing)-step-\d{8,}(-[0-9a-f]+)*")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose checksums were verified.

    Attributes:
        progress: Progress of the run at the checkpoint.
        metadata: Further facts about the run, as JSON values.
        verified: The verified folder of the checkpoint.
    """

    progress: Progress
    metadata: dict[str, Any]
    verified: VerifiedFolder[Manifest]

    @property
    def model(self) -> Path:
        """Path of the model bundle inside the checkpoint."""
        return self.verified.folder / MODEL

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Loads the tensors saved under a name.

        Raises:
            CheckpointError: The file does not exist, or is not a safetensors file.
        """
        path = self.verified.verified_path(f"{name}.safetensors")
        try:
            return load_tensors(path)
        except DataError as error:
            raise CheckpointError(f"{path}: {error}; do not use this checkpoint") from error


class CheckpointManager:
    """Saves, finds and removes the checkpoints of one run; only one process may write.

    Args:
        run: Folder of the run.
        keep_last: Number of recent checkpoints to keep, in addition to those that they refer to.
        optional_files: Names of files that an intact checkpoint may lack.
    """

    def __init__(self, run: Path, keep_last: int = 2, optional_files: Collection[str] = ()) -> None:
        self.run = run
        self.damaged: dict[int, str] = {}
        self._keep_last = keep_last
        self._optional_files = optional_files

    def save(
        self,
        progress: Progress,
        metadata: Mapping[str, Any],
        write_model: Callable[[Path], None],
        tensors: Mapping[str, dict[str, Tensor]],
    ) -> None:
        """Writes a checkpoint, then removes those that are no longer needed.

        Args:
            progress: Current progress of the run.
            metadata: Further facts about the run, as JSON values.
            write_model: Function that writes the model bundle into a folder.
            tensors: Tensors by file name without suffix, e.g. "optimizer".

        Raises:
            CheckpointError: The disk is full or not writable; earlier checkpoints are unchanged.
        """

        def fill(folder: Path) -> None:
            write_model(folder / MODEL)
            for name, content in tensors.items():
                save_tensors(folder / f"{name}.safetensors", content)
            record = {"progress": progress.to_json(), **metadata}
            (folder / RECORD).write_text(json.dumps(record, indent=2, ensure_ascii=False), encoding="utf-8")

        folder = self.folder(progress.step)
        try:
            self._clear_destination(folder)
            write_verified_folder(folder, CHECKPOINT, {}, fill)
        except (OSError, OutputError) as error:
            reason = error.reason if isinstance(error, OutputError) else error.strerror
            raise CheckpointError(
                f"{folder} could not be written: {reason}; the checkpoints before it are intact; free disk space, "
                "then resume with the same command"
            ) from error
        self.damaged.pop(progress.step, None)
        self.remove_obsolete(progress)
        for step in self.damaged:  # their steps have been repeated by now, or are older than those kept
            self._remove(self.folder(step))
        self.damaged.clear()

    def latest(self) -> Checkpoint | None:
        """Returns the latest intact checkpoint; `damaged` records the faults of later ones.

        Raises:
            CheckpointError: There are checkpoints, but none is intact.
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
        """Whether a step has a checkpoint whose checksums match; if not, `damaged` records the reason."""
        try:
            self._open(step)
        except DamageError as error:
            self.damaged[step] = str(error)
            return False
        return True

    def folder(self, step: int) -> Path:
        """Returns the folder of the checkpoint of a step."""
        return checkpoint_folder(self.run, step)

    def _open(self, step: int) -> Checkpoint:
        verified = VerifiedFolder(self.folder(step), CHECKPOINT)
        verified.verify_all(self._optional_files)
        metadata = read_record(verified)
        return Checkpoint(Progress.from_json(metadata.pop("progress")), metadata, verified)

    def remove_obsolete(self, progress: Progress) -> None:
        """Removes unfinished files of a killed process and the checkpoints that are no longer needed.

        The last intact checkpoints are kept, as well as those that they refer to. Damaged ones are not touched.
        """
        self._clear_leftovers()
        steps = [step for step in checkpoint_steps(self.run) if step not in self.damaged]
        last = steps[-self._keep_last :]
        kept = {*last, *progress.needed_steps}
        for step in last:
            kept |= self._referenced_by(step)
        for step in steps:
            if step not in kept:
                self._remove(self.folder(step))

    def _clear_leftovers(self) -> None:
        for path in (self.run / FOLDER).glob("*"):  # nothing if a new run has no such folder
            if LEFTOVER.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)

    def _clear_destination(self, folder: Path) -> None:
        """Creates the parent folder and removes leftovers and an older checkpoint of the same step."""
        if not folder.parent.is_dir():
            folder.parent.mkdir(parents=True)
            sync(self.run)
        self._clear_leftovers()
        if folder.exists():
            self._remove(folder)

    def _referenced_by(self, step: int) -> set[int]:
        try:
            record = read_record(VerifiedFolder(self.folder(step), CHECKPOINT))
            return Progress.from_json(record["progress"]).needed_steps
        except DamageError:
            return set()

    def _remove(self, folder: Path) -> None:
        """Renames the folder before removing it, so that its name never refers to a partly removed folder."""
        removed = folder.with_name(f".removing-{folder.name}")
        shutil.rmtree(removed, ignore_errors=True)
        if folder.is_dir():
            folder.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)
