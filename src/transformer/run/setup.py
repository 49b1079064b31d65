"""Setup of a run: builds data, model and optimizer from a recipe, new or restored from a checkpoint."""

from collections.abc import Collection
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformer.config import Config
from transformer.data.progress import show_progress
from transformer.models import family
from transformer.run.fine_tuning import inherit_settings, load_pretrained, read_pretrained
from transformer.run.recipe import Recipe
from transformer.run.resume import (
    ResumePoint,
    check_allowed_keys,
    check_recipe_unchanged,
    check_texts_unchanged,
    find_resume_point,
    optional_files,
    restore_optimizer_state,
    restore_weights,
)
from transformer.run.task import Task, TaskData
from transformer.run.tasks import make_task
from transformer.run.trainer import Trainer
from transformer.runtime.machine import machine
from transformer.storage.atomic import replace_text
from transformer.training.backend import Backend, choose_backend
from transformer.training.checkpoint import CheckpointManager
from transformer.training.compilation import compile_layers
from transformer.training.config import TrainingConfig
from transformer.training.distributed.data_parallel import distribute_model
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.loop import steps_per_epoch
from transformer.training.monitoring.progress import Progress
from transformer.training.monitoring.tensorboard import require_tensorboard
from transformer.training.optim.adam import make_optimizer
from transformer.training.optim.schedule import Schedule, make_schedule
from transformer.training.planning.memory import check_model_fits
from transformer.training.planning.plan import choose_batch_tokens
from transformer.training.rng import reseed
from transformer.training.step import TrainingState

RECIPE_FILE = "recipe.toml"


def prepare_data(recipe: Recipe, folder: Path, *, quiet: bool = False) -> TaskData:
    """Prepares the data of a recipe ahead of a run, for use as `data.prepared`.

    Args:
        recipe: Recipe of the run.
        folder: Folder for the prepared data; overrides `data.prepared`.
        quiet: Whether to hide progress.

    Raises:
        TransformerError: A setting is invalid, or the data cannot be used.
    """
    data = recipe.data.model_copy(update={"prepared": None})
    with show_progress(quiet=quiet) as progress:
        task = make_task(data, recipe.training.seed, folder, progress)
        pretrained = read_pretrained(recipe, task.family_kinds)
        completed = task.complete(pretrained.recipe if pretrained else recipe)
        return task.prepare(completed, pretrained.bundle if pretrained else None)


def _check_environment(training: TrainingConfig) -> None:
    """Checks device, precision and packages before a corpus is prepared, which may take hours.

    Raises:
        ConfigError: A device, precision or package is not available.
    """
    choose_backend(training.device, training.precision)
    if training.tensorboard:
        require_tensorboard()


def build_trainer(
    user_recipe: Recipe,
    folder: Path,
    task: Task,
    allow_changed: Collection[str],
    notes: list[str],
    context: DistributedContext,
) -> Trainer:
    """Builds a trainer: new, from a pretrained model, or from the newest checkpoint; rank 0 prepares the data first."""
    _check_environment(user_recipe.training)
    checkpoints = CheckpointManager(folder, user_recipe.training.keep_last, optional_files(allow_changed))
    with context.main_first():
        resumed = find_resume_point(checkpoints)
        inputs = dict(task.checksums)
        if resumed:
            check_texts_unchanged(resumed, inputs, user_recipe, allow_changed)
        pretrained = None if resumed else read_pretrained(user_recipe, task.family_kinds)
        if resumed:
            user_recipe = _continue_recipe(user_recipe, resumed.recipe)
        elif pretrained:
            user_recipe = pretrained.recipe
        recipe = task.complete(user_recipe)
        check_allowed_keys(allow_changed, recipe)
        if resumed:
            check_recipe_unchanged(resumed, recipe, allow_changed)
        base_bundle = resumed.bundle if resumed else pretrained.bundle if pretrained else None
        task_data = task.prepare(recipe, base_bundle)
    if recipe.training.batch_tokens == "auto":
        recipe = _with_batch_tokens(recipe, task, task_data, context)
    epoch_steps = steps_per_epoch(task_data.train, recipe.training)
    completed = task.complete(recipe, epoch_steps, resumed.recipe if resumed else None)
    recipe = _with_backend(completed, resumed, context)
    schedule = _make_schedule(recipe, task_data.config)
    backend = _choose_backend(recipe.training)
    model = _make_model(task_data.config, recipe.training, context)
    if pretrained:
        labels = [config.model_dump().get("labels") for config in (pretrained.bundle.config, task_data.config)]
        stored = pretrained.bundle.model.state_dict()
        new_parameters = load_pretrained(model, stored, same_labels=labels[0] == labels[1])
        notes = [*notes, f"newly initialized: {', '.join(new_parameters)}"] if new_parameters else notes
    if resumed:
        restore_weights(resumed, model)
    distributed = distribute_model(_make_objective(task, model, recipe.training, task_data), model, context)
    optimizer = make_optimizer(distributed.model, recipe.training)
    progress = resumed.checkpoint.progress if resumed else Progress()
    if resumed:
        restore_optimizer_state(resumed, distributed.model, optimizer)
        notes = [*notes, *resumed.warnings, *environment_changes(resumed.bundle.provenance, backend.device.type)]
    if context.is_main:
        if resumed:
            checkpoints.remove_obsolete(progress)
        replace_text(folder / RECIPE_FILE, recipe.to_toml())
    training = recipe.training
    state = TrainingState(
        distributed.objective, optimizer, progress.step, training.seed, backend, training.log_every, context
    )
    notes = [*notes, *task_data.notes]
    origin = pretrained.origin if pretrained else resumed.bundle.provenance.get("start") if resumed else None
    return Trainer(
        folder, recipe, task, task_data, distributed, state, schedule, checkpoints, progress, inputs, notes, origin,
    )  # fmt: skip


def _continue_recipe(user_recipe: Recipe, previous: Recipe) -> Recipe:
    """Returns the user's recipe with the settings that the run keeps, such as a batch size chosen automatically."""
    recipe = inherit_settings(user_recipe, previous)
    if recipe.training.batch_tokens != "auto":
        return recipe
    training = recipe.training.model_copy(update={"batch_tokens": previous.training.batch_tokens})
    return recipe.model_copy(update={"training": training})


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


def _choose_backend(training: TrainingConfig) -> Backend:
    return replace(choose_backend(training.device, training.precision), is_compiled=training.compile)


def _make_objective(task: Task, model: nn.Module, training: TrainingConfig, task_data: TaskData) -> nn.Module:
    objective = task.objective(model, training, task_data)
    if training.compile:
        compile_layers(objective)
    return objective


def _with_batch_tokens(recipe: Recipe, task: Task, task_data: TaskData, context: DistributedContext) -> Recipe:
    """Resolves `batch_tokens="auto"` by trying batches on a model of the run's size; rank 0 decides."""
    training = recipe.training
    backend = _choose_backend(training)
    objective = _make_objective(task, _make_model(task_data.config, training, context), training, task_data)
    state = TrainingState(objective, make_optimizer(objective, training), 0, training.seed, backend)
    tokens = context.broadcast(choose_batch_tokens(state, task_data.train, training))
    return recipe.model_copy(update={"training": training.model_copy(update={"batch_tokens": tokens})})


def _with_backend(recipe: Recipe, resumed: ResumePoint | None, context: DistributedContext) -> Recipe:
    """Fills in precision and accumulation if the recipe does not set them.

    A resumed run keeps its values. A new run uses the fastest precision of the device and one micro-batch per rank, and
    keeps both from then on.
    """
    training = recipe.training
    before = resumed.recipe.training if resumed else training
    precision = choose_backend(training.device, training.precision or before.precision).precision
    accumulation = training.accumulation or before.accumulation or context.size
    update = {"precision": context.broadcast(precision), "accumulation": accumulation}
    return recipe.model_copy(update={"training": training.model_copy(update=update)})


def _make_model(config: Config, training: TrainingConfig, context: DistributedContext) -> nn.Module:
    """Builds a new model on its device, after a check that it fits into memory."""
    build = family(str(config.model_dump()["family"])).build
    device = choose_backend(training.device, training.precision).device
    with torch.device("meta"):
        shapes = build(config)
    check_model_fits(shapes, device, context.size if training.distribution == "fsdp" else 1)
    reseed(training.seed)
    return build(config).to(device)


def _make_schedule(recipe: Recipe, config: Config) -> Schedule:
    training = recipe.training
    assert training.decay_steps is not None
    assert training.warmup_steps is not None
    return make_schedule(
        training.schedule,
        d_model=config.model_dump()["d_model"],
        peak=training.learning_rate,
        warmup_steps=training.warmup_steps,
        decay_steps=training.decay_steps,
    )
