"""Resuming a run: finding its newest checkpoint, and checking that recipe and texts are unchanged."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformer.bundle import Bundle, load_bundle
from transformer.bundle.weights import check_tensors
from transformer.config import describe_error
from transformer.data.augment.config import UnaskedAugmentConfig
from transformer.data.config import DataConfig
from transformer.errors import BundleError, CheckpointError
from transformer.models.kinds import ModelConfig
from transformer.run.defaults import fill_in
from transformer.run.fine_tuning import inherit_settings
from transformer.run.recipe import Recipe, parse_recipe
from transformer.run.start import OPTIMIZER, Start, complete_recipe
from transformer.run.task import Task
from transformer.runtime.machine import machine
from transformer.tokenizers.pair import TokenizerPair
from transformer.training.backend import choose_backend
from transformer.training.checkpoint import Checkpoint, CheckpointManager
from transformer.training.monitoring.progress import Progress
from transformer.training.optim.ema import EMA_KEY, swap_ema_parameters
from transformer.training.optim.state_dict import ADAM_KEYS, restore_optimizer

LENGTH_KEYS = ("max_steps", "max_seconds", "patience", "validate_every", "save_every", "keep_last", "stop_seconds")
AVERAGING_KEYS = ("average_last", "average_best")
LOGGING_KEYS = ("log_every", "tensorboard")
DEVICE_KEYS = ("threads", "device", "distribution", "rank_seconds", "activation_checkpointing")
DATA_KEYS = ("prepared", "workers", "source_language", "target_language", "license", "attribution")
MAY_CHANGE = frozenset([
    *(f"training.{key}" for key in (*LENGTH_KEYS, *AVERAGING_KEYS, *LOGGING_KEYS, *DEVICE_KEYS)),
    *(f"data.{key}" for key in DATA_KEYS),
])  # fmt: skip
"""Keys that may change when a run is resumed; all others affect what a step computes."""
INHERITED_KEYS = {"warmup_steps", "decay_steps", "precision", "accumulation"}
"""Keys of the `training` section that a resumed run inherits if the recipe does not set them."""


@dataclass(frozen=True)
class EarlierRun:
    """The run that is resumed.

    Attributes:
        checkpoint: Newest intact checkpoint.
        recipe: Completed recipe.
        inputs: SHA-256 of every input file.
        warnings: Descriptions of damaged checkpoints.
    """

    checkpoint: Checkpoint
    recipe: Recipe
    inputs: dict[str, str]
    warnings: list[str]


@dataclass(frozen=True, kw_only=True)
class ResumedStart(Start):
    """Start from a checkpoint."""

    bundle: Bundle
    earlier: EarlierRun

    def load_weights(self, model: nn.Module, config: ModelConfig, text: TokenizerPair | None) -> list[str]:
        """Loads the weights of the checkpoint; tied parameters stay tied.

        Raises:
            CheckpointError: Parameters are missing, unexpected or of another shape.
        """
        del config, text
        state = self.bundle.model.state_dict()
        try:
            check_tensors(model, state)
        except BundleError as error:
            raise CheckpointError(f"{self.earlier.checkpoint.model}: {error}; start anew with --fresh") from error
        model.load_state_dict(state)
        return []

    def restore_optimizer(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Loads the optimizer state; if its file is missing, which must be allowed, Adam starts with an empty state.

        Raises:
            CheckpointError: The state does not match the model, or a part of it is missing.
        """
        if _has_optimizer_state(self.earlier.checkpoint):
            has_mean = self.earlier.recipe.training.ema_decay and self.progress.step  # there is none before a step
            keys = (*ADAM_KEYS, EMA_KEY) if has_mean else ADAM_KEYS
            restore_optimizer(model, optimizer, self.earlier.checkpoint.tensors(OPTIMIZER), keys)
            swap_ema_parameters(optimizer)  # the stored model is the running mean if there is one


def earlier_run(checkpoints: CheckpointManager) -> EarlierRun | None:
    """Returns the run up to its newest intact checkpoint; None if it has no checkpoint at all.

    If the best checkpoint is damaged, the best score is reset, so that the next validation sets a new one.

    Raises:
        CheckpointError: There are checkpoints but none is intact, or the newest does not record recipe and texts.
    """
    checkpoint = checkpoints.latest()
    if checkpoint is None:
        return None
    return EarlierRun(checkpoint, *_read_facts(checkpoint), _damage_warnings(checkpoint.progress, checkpoints))


def resumed_start(
    earlier: EarlierRun, run: Path, recipe: Recipe, task: Task[Any], allow_changed: Collection[str]
) -> ResumedStart:
    """Returns the start from the newest intact checkpoint of a run.

    Args:
        earlier: The run up to that checkpoint.
        run: Run folder.
        recipe: Recipe of the user with the settings that the run keeps, see `continue_recipe`.
        task: Task of the recipe.
        allow_changed: Keys that may differ from those that the run began with.

    Raises:
        CheckpointError: A text or a key of the recipe has changed.
        ConfigError: Keys of the recipe contradict each other, or `allow_changed` names an unknown key.
    """
    bundle = load_bundle(earlier.checkpoint.model)
    _check_texts_unchanged(run, earlier.inputs, task.checksums, recipe, allow_changed)
    completed = complete_recipe(recipe, task, {*allow_changed} - earlier.inputs.keys())
    _check_recipe_unchanged(run, earlier.recipe, completed.recipe, {*allow_changed, *earlier.inputs})
    notes = [*earlier.warnings]
    if not _has_optimizer_state(earlier.checkpoint):
        notes.append("warning: the checkpoint has no optimizer.safetensors; Adam starts with an empty state")
    device = choose_backend(completed.recipe.training.device).device
    notes += environment_changes(bundle.provenance, device.type)
    return ResumedStart(
        recipe=completed,
        bundle=bundle,
        progress=earlier.checkpoint.progress,
        origin=bundle.provenance.get("start", {}),
        notes=notes,
        earlier=earlier,
    )


def checkpoint_facts(recipe: Recipe, inputs: Mapping[str, str]) -> dict[str, Any]:
    """Returns the record of recipe and texts that a checkpoint stores for `resumed_start`."""
    return {"recipe": recipe.model_dump(mode="json", exclude_none=True), "inputs": dict(inputs)}


def _read_facts(checkpoint: Checkpoint) -> tuple[Recipe, dict[str, str]]:
    """Returns the recipe and the SHA-256 of every input file that the run began with, see `checkpoint_facts`."""
    facts = checkpoint.metadata
    try:
        tokenizer = {"normalize": False, **facts["recipe"].get("tokenizer", {})}  # earlier versions lack the key
        return parse_recipe({**facts["recipe"], "tokenizer": tokenizer}, "its recipe"), dict(facts["inputs"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{checkpoint.verified.folder} does not record the recipe and texts of its run ({describe_error(error)}); "
            "start anew with --fresh"
        ) from error


def _damage_warnings(progress: Progress, checkpoints: CheckpointManager) -> list[str]:
    """Describes the damaged checkpoints; if the best one is among them, the best score is reset."""
    warnings = [f"warning: {reason}; continuing from step {progress.step}" for reason in checkpoints.damaged.values()]
    if progress.best_step is not None and not checkpoints.is_intact(progress.best_step):
        reason = checkpoints.damaged[progress.best_step]
        warnings.append(f"warning: {reason}; it was the best checkpoint; the best score is reset")
        progress.best_step = progress.best_score = None
    return warnings


def continue_recipe(recipe: Recipe, previous: Recipe) -> Recipe:
    """Returns the user's recipe with the settings that the run keeps, such as a batch size chosen automatically."""
    recipe = inherit_settings(_change_minutes(recipe, previous), previous)
    recipe = fill_in(recipe, "training", previous.training.model_dump(include=INHERITED_KEYS))
    recipe = fill_in(recipe, "tokenizer", {"normalize": previous.tokenizer.normalize})
    if isinstance(recipe.data, DataConfig) and isinstance(previous.data, DataConfig):
        recipe = fill_in(recipe, "data", previous.data.model_dump(include={"source_language", "target_language"}))
    if isinstance(recipe.data, DataConfig) and isinstance(recipe.data.augment, UnaskedAugmentConfig):
        before = previous.data.augment if isinstance(previous.data, DataConfig) else None
        recipe = recipe.with_keys("data", {"augment": before})
    if "best_metric" not in recipe.training.model_fields_set:  # its default may differ between versions
        recipe = recipe.with_keys("training", {"best_metric": previous.training.best_metric})
    if recipe.training.batch_tokens != "auto":
        return recipe
    return recipe.with_keys("training", {"batch_tokens": previous.training.batch_tokens})


def _change_minutes(recipe: Recipe, previous: Recipe) -> Recipe:
    """Returns the recipe with as many more seconds of training as it has more minutes than before."""
    minutes, before = recipe.training.minutes, previous.training.minutes or 0.0
    if minutes is None or minutes == before:
        return recipe
    seconds = max(1.0, (previous.training.max_seconds or 0.0) + 60 * (minutes - before))
    return fill_in(recipe, "training", {"max_seconds": seconds})


def _check_texts_unchanged(
    run: Path, before: Mapping[str, str], now: Mapping[str, str], recipe: Recipe, allowed: Collection[str]
) -> None:
    """Checks that the contents of the texts are unchanged; their paths may differ."""
    paths = _flatten(recipe) | _stage_paths(recipe)
    changed = [
        f"{key} ({paths.get(key, 'no file')})"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and key not in allowed
    ]
    if changed:
        raise CheckpointError(
            f"{run} was trained on other texts: {', '.join(changed)} changed; restore them, "
            "start anew with --fresh, or allow the change with --allow-changed KEY"
        )


def _check_recipe_unchanged(run: Path, previous: Recipe, now: Recipe, allowed: Collection[str]) -> None:
    """Checks that the recipe is unchanged, except for keys such as the length of the run, logging and devices."""
    before, after = _flatten(previous), _flatten(now)
    changed = [
        f"{key} was {_format_value(before.get(key))}, now {_format_value(after.get(key))}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and key not in MAY_CHANGE and key not in allowed
    ]
    if changed:
        raise CheckpointError(
            f"{run} holds a run of another recipe ({'; '.join(changed)}); start anew with "
            "--fresh, or allow the change with --allow-changed KEY"
        )


def environment_changes(provenance: dict[str, Any], device: str) -> list[str]:
    """Returns a warning if the device, its kernels or the version of torch changed since the checkpoint."""
    before = {**provenance.get("machine", {}), **provenance.get("versions", {})}
    if "device" not in before:  # written by an earlier version
        return []
    now = {**machine(), "device": device, "torch": version("torch")}
    device_key = ("kernels" if device == "cpu" else "accelerator") if device == before["device"] else "device"
    changed = [key for key in (device_key, "torch") if before.get(key) != now.get(key)]
    shown = ", ".join(f"{key} {before.get(key, 'none')}, now {now.get(key, 'none')}" for key in changed)
    return [f"warning: the environment has changed ({shown}); results may differ in the last bits"] if shown else []


def optional_files(allowed: Collection[str]) -> list[str]:
    """Returns the files of a checkpoint that the user allows to be missing."""
    return [f"{OPTIMIZER}.safetensors"] if OPTIMIZER in allowed else []


def _has_optimizer_state(checkpoint: Checkpoint) -> bool:
    return (checkpoint.verified.folder / f"{OPTIMIZER}.safetensors").exists()


def _flatten(recipe: Recipe) -> dict[str, Any]:
    """Returns the recipe as a mapping from `section.key` to JSON values."""
    sections = recipe.model_dump(mode="json", exclude_none=True)
    return {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}


def _stage_paths(recipe: Recipe) -> dict[str, str | None]:
    """Returns the validation files of the stages, under the keys of their checksums."""
    stages = recipe.data.stages if isinstance(recipe.data, DataConfig) else None
    return {
        f"data.stages.{stage.name}.{key}": getattr(stage, key)
        for stage in stages or ()
        for key in ("validation_source", "validation_target")
    }


def _format_value(value: Any) -> str:
    return "not set" if value is None else repr(value)
