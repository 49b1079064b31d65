"""Going on with a run: from which checkpoint, and only with the recipe and the texts it began with."""

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
"""Keys that may differ when a run goes on; all others decide what a step computes."""
OPTIMIZER = "optimizer"
"""The state that a checkpoint holds in the file of this name, and that `allowed` may name."""
TAKEN_OVER = frozenset(f"training.{key}" for key in ("warmup_steps", "decay_steps", "precision", "accumulation"))
"""Keys that, where they are left open, are those of the run that goes on."""


@dataclass(frozen=True)
class ResumePoint:
    """What a run goes on from.

    Attributes:
        checkpoint: the newest that is whole.
        bundle: the model in it.
        recipe: filled in, as the run began.
        inputs: what the texts held, as `fingerprint_inputs` gave it.
        warnings: what the reader should know.
    """

    checkpoint: Checkpoint
    bundle: Bundle
    recipe: Recipe
    inputs: dict[str, str]
    warnings: list[str] = field(default_factory=list)


def find_earlier(checkpoints: CheckpointManager) -> ResumePoint | None:
    """The newest checkpoint of a run that is whole, or None where there is none at all.

    A best that is damaged is forgotten, so that the next validation is the best again.

    Raises:
        CheckpointError: there are checkpoints, but none is whole, or the newest is not of a run of ours.
    """
    checkpoint = checkpoints.latest()
    if checkpoint is None:
        return None
    progress = checkpoint.progress
    warnings = [f"warning: {reason}; going on from step {progress.step}" for reason in checkpoints.damaged.values()]
    if progress.best_step is not None and not checkpoints.is_intact(progress.best_step):
        reason = checkpoints.damaged[progress.best_step]
        warnings.append(f"warning: {reason}; it was the best, which is now looked for anew")
        progress.best_step = progress.best_score = None
    facts = checkpoint.metadata
    try:
        recipe, inputs = parse_recipe(facts["recipe"], "its recipe"), dict(facts["inputs"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{checkpoint.verified.folder} does not tell its run's recipe and texts ({error}); start anew with --fresh"
        ) from error
    return ResumePoint(checkpoint, load_bundle(checkpoint.model), recipe, inputs, warnings)


def record_of(recipe: Recipe, inputs: dict[str, str]) -> dict[str, Any]:
    """What a checkpoint keeps of recipe and texts, for `find_earlier`."""
    return {"recipe": recipe.model_dump(mode="json", exclude_none=True), "inputs": inputs}


def refuse_changed_texts(earlier: ResumePoint, now: dict[str, str], recipe: Recipe, allowed: Collection[str]) -> None:
    """The texts must hold what they held, wherever they lie now.

    Raises:
        CheckpointError: a text was edited, or is there or not where it was not or was.
    """
    paths = _flat(recipe)
    changed = [
        f"{key} ({paths.get(key, 'no file')})"
        for key in sorted(earlier.inputs.keys() | now.keys())
        if earlier.inputs.get(key) != now.get(key) and key not in allowed
    ]
    if changed:
        raise CheckpointError(
            f"{_run_of(earlier)} was trained on other texts than these now hold: {', '.join(changed)}; put them back, "
            "start anew with --fresh, or allow it with --allow-changed KEY"
        )


def refuse_changed_recipe(earlier: ResumePoint, now: Recipe, allowed: Collection[str]) -> None:
    """A run that goes on must have the same recipe, but for how long it may take and what it tells.

    Args:
        earlier: whose recipe is compared; its texts are compared by content, not by path.
        now: filled in.
        allowed: keys that may differ at the user's own risk.

    Raises:
        CheckpointError: a key differs.
    """
    before, after = _flat(earlier.recipe), _flat(now)
    free = {*MAY_CHANGE, *allowed, *earlier.inputs, *(key for key in TAKEN_OVER if after.get(key) is None)}
    changed = [
        f"{key} was {_shown(before.get(key))}, now {_shown(after.get(key))}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and key not in free
    ]
    if changed:
        raise CheckpointError(
            f"{_run_of(earlier)} holds a run of another recipe ({'; '.join(changed)}); start anew with --fresh, or "
            "allow it with --allow-changed KEY"
        )


def refuse_unknown_keys(allowed: Collection[str], recipe: Recipe) -> None:
    """What may be allowed to change: keys of a recipe, but not those of the tokenizer, which a run keeps.

    Raises:
        ConfigError: a key is none, or of the tokenizer.
    """
    known = {f"{section}.{key}" for section, keys in recipe.model_dump().items() for key in keys or {}} | {OPTIMIZER}
    for key in allowed:
        if key not in known or key.startswith("tokenizer."):
            raise ConfigError(
                f"--allow-changed {key!r} is not a key that can change in a run, whose tokenizer stays as it is; name "
                "one such as training.learning_rate"
            )


def may_lack(allowed: Collection[str]) -> list[str]:
    """The files of a checkpoint that the user lets be missing."""
    return [f"{OPTIMIZER}.safetensors"] if OPTIMIZER in allowed else []


def restore_weights(earlier: ResumePoint, model: nn.Module) -> None:
    """Puts the weights in place; a matrix that is shared stays shared.

    Raises:
        CheckpointError: they are not of this model, or a part of them is missing.
    """
    try:
        model.load_state_dict(earlier.bundle.model.state_dict())
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:500]
        raise CheckpointError(f"{earlier.checkpoint.model}: {reason}; start anew with --fresh") from error


def restore_memory(earlier: ResumePoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Puts what the optimizer remembers in place, each rank its part.

    Where the optimizer's file is missing, which only `may_lack` lets pass, it starts from nothing.

    Raises:
        CheckpointError: it is not of this model, or a part of it is missing.
    """
    if (earlier.checkpoint.verified.folder / f"{OPTIMIZER}.safetensors").exists():
        keys = (*ADAM_KEYS, EMA_KEY) if earlier.recipe.training.ema_decay else ADAM_KEYS
        restore_optimizer(model, optimizer, earlier.checkpoint.tensors(OPTIMIZER), keys)
        swap_ema_parameters(optimizer)  # the stored model is the running mean, where there is one
    else:
        earlier.warnings.append("warning: the checkpoint has no optimizer.safetensors; Adam starts from nothing")


def _flat(recipe: Recipe) -> dict[str, Any]:
    """`section.key` -> value, in values of JSON."""
    sections = recipe.model_dump(mode="json", exclude_none=True)
    return {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)


def _run_of(earlier: ResumePoint) -> Path:
    return earlier.checkpoint.verified.folder.parents[1]
