"""Resuming a run: finding its newest checkpoint, and checking that recipe and texts are unchanged."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformer.bundle import Bundle, load_bundle
from transformer.errors import CheckpointError, ConfigError
from transformer.run.recipe import Recipe, parse_recipe
from transformer.training.checkpoint import Checkpoint, CheckpointManager
from transformer.training.optim.ema import EMA_KEY, swap_ema_parameters
from transformer.training.optim.state_dict import ADAM_KEYS, restore_optimizer

LENGTH = ("max_steps", "patience", "validate_every", "save_every", "keep_last", "stop_seconds")
AT_THE_END = ("average_last", "average_best")
LOGGING = ("log_every", "tensorboard")
WHERE = ("threads", "device", "distribution", "rank_seconds", "activation_checkpointing")
MAY_CHANGE = frozenset(
    [*(f"training.{key}" for key in (*LENGTH, *AT_THE_END, *LOGGING, *WHERE)), "data.prepared", "data.workers"]
)
"""Keys that may change when a run is resumed; all others affect what a step computes."""
OPTIMIZER = "optimizer"
"""Name of the optimizer state in a checkpoint, also accepted by `--allow-changed`."""
INHERITED_KEYS = frozenset(f"training.{key}" for key in ("warmup_steps", "decay_steps", "precision", "accumulation"))
"""Keys that a resumed run inherits if the recipe does not set them."""


@dataclass(frozen=True)
class ResumePoint:
    """The state from which a run is resumed.

    Attributes:
        checkpoint: Newest intact checkpoint.
        bundle: Model of the checkpoint.
        recipe: Completed recipe that the run began with.
        inputs: SHA-256 of every input file that the run began with, by key; see `Task.checksums`.
        warnings: Warnings for the user.
    """

    checkpoint: Checkpoint
    bundle: Bundle
    recipe: Recipe
    inputs: dict[str, str]
    warnings: list[str] = field(default_factory=list)


def find_resume_point(checkpoints: CheckpointManager) -> ResumePoint | None:
    """Finds the newest intact checkpoint of a run; returns None if the run has no checkpoint at all.

    If the best checkpoint is damaged, the best score is reset, so that the next validation sets a new one.

    Raises:
        CheckpointError: There are checkpoints but none is intact, or the newest does not record recipe and texts.
    """
    checkpoint = checkpoints.latest()
    if checkpoint is None:
        return None
    progress = checkpoint.progress
    warnings = [f"warning: {reason}; continuing from step {progress.step}" for reason in checkpoints.damaged.values()]
    if progress.best_step is not None and not checkpoints.is_intact(progress.best_step):
        reason = checkpoints.damaged[progress.best_step]
        warnings.append(f"warning: {reason}; it was the best checkpoint; the best score is reset")
        progress.best_step = progress.best_score = None
    facts = checkpoint.metadata
    try:
        recipe, inputs = parse_recipe(facts["recipe"], "its recipe"), dict(facts["inputs"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{checkpoint.verified.folder} does not record the recipe and texts of its run ({error}); start anew "
            "with --fresh"
        ) from error
    return ResumePoint(checkpoint, load_bundle(checkpoint.model), recipe, inputs, warnings)


def checkpoint_facts(recipe: Recipe, inputs: dict[str, str]) -> dict[str, Any]:
    """Returns the record of recipe and texts that a checkpoint stores for `find_resume_point`."""
    return {"recipe": recipe.model_dump(mode="json", exclude_none=True), "inputs": inputs}


def check_texts_unchanged(
    resume_point: ResumePoint, now: dict[str, str], recipe: Recipe, allowed: Collection[str]
) -> None:
    """Checks that the contents of the texts are unchanged; their paths may differ.

    Raises:
        CheckpointError: A text was edited, added or removed.
    """
    paths = _flatten(recipe)
    changed = [
        f"{key} ({paths.get(key, 'no file')})"
        for key in sorted(resume_point.inputs.keys() | now.keys())
        if resume_point.inputs.get(key) != now.get(key) and key not in allowed
    ]
    if changed:
        raise CheckpointError(
            f"{_run_folder(resume_point)} was trained on other texts: {', '.join(changed)} changed; restore them, "
            "start anew with --fresh, or allow the change with --allow-changed KEY"
        )


def check_recipe_unchanged(resume_point: ResumePoint, now: Recipe, allowed: Collection[str]) -> None:
    """Checks that the recipe is unchanged, except for keys such as the length of the run, logging and devices.

    Args:
        resume_point: State of the stored run. Its texts are compared by content elsewhere, not by path here.
        now: Completed recipe of the resumed run.
        allowed: Further keys that the user allows to differ.

    Raises:
        CheckpointError: Another key differs.
    """
    before, after = _flatten(resume_point.recipe), _flatten(now)
    exempt = {*MAY_CHANGE, *allowed, *resume_point.inputs, *(key for key in INHERITED_KEYS if after.get(key) is None)}
    changed = [
        f"{key} was {_format_value(before.get(key))}, now {_format_value(after.get(key))}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and key not in exempt
    ]
    if changed:
        raise CheckpointError(
            f"{_run_folder(resume_point)} holds a run of another recipe ({'; '.join(changed)}); start anew with "
            "--fresh, or allow the change with --allow-changed KEY"
        )


def check_allowed_keys(allowed: Collection[str], recipe: Recipe) -> None:
    """Checks the keys of `--allow-changed`: any key of a recipe except those of the tokenizer, which a run keeps.

    Raises:
        ConfigError: A key is unknown or belongs to the tokenizer.
    """
    known = {f"{section}.{key}" for section, keys in recipe.model_dump().items() for key in keys or {}} | {OPTIMIZER}
    for key in allowed:
        if key not in known or key.startswith("tokenizer."):
            raise ConfigError(
                f"--allow-changed {key!r} is not a key that can change in a run; name a key of the recipe, such as "
                "training.learning_rate, but none of the tokenizer"
            )


def optional_files(allowed: Collection[str]) -> list[str]:
    """Returns the files of a checkpoint that the user allows to be missing."""
    return [f"{OPTIMIZER}.safetensors"] if OPTIMIZER in allowed else []


def restore_weights(resume_point: ResumePoint, model: nn.Module) -> None:
    """Loads the weights of the checkpoint into the model; tied parameters stay tied.

    Raises:
        CheckpointError: Parameters are missing, unexpected or of another shape.
    """
    try:
        model.load_state_dict(resume_point.bundle.model.state_dict())
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:500]
        raise CheckpointError(f"{resume_point.checkpoint.model}: {reason}; start anew with --fresh") from error


def restore_optimizer_state(resume_point: ResumePoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Loads the optimizer state of the checkpoint, on every rank its own part.

    If the file is missing, which must be allowed through `optional_files`, Adam starts with an empty state.

    Raises:
        CheckpointError: The state does not match the model, or a part of it is missing.
    """
    if (resume_point.checkpoint.verified.folder / f"{OPTIMIZER}.safetensors").exists():
        keys = (*ADAM_KEYS, EMA_KEY) if resume_point.recipe.training.ema_decay else ADAM_KEYS
        restore_optimizer(model, optimizer, resume_point.checkpoint.tensors(OPTIMIZER), keys)
        swap_ema_parameters(optimizer)  # the stored model is the running mean if there is one
    else:
        resume_point.warnings.append(
            "warning: the checkpoint has no optimizer.safetensors; Adam starts with an empty state"
        )


def _flatten(recipe: Recipe) -> dict[str, Any]:
    """Returns the recipe as a mapping from `section.key` to JSON values."""
    sections = recipe.model_dump(mode="json", exclude_none=True)
    return {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}


def _format_value(value: Any) -> str:
    return "not set" if value is None else repr(value)


def _run_folder(resume_point: ResumePoint) -> Path:
    return resume_point.checkpoint.verified.folder.parents[1]
