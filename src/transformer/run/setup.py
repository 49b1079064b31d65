"""From a recipe to the parts of a run: data, model, optimizer, new or as the run left them."""

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
from transformer.run.fine_tuning import inherit_settings, load_pretrained, read_start
from transformer.run.recipe import Recipe
from transformer.run.resume import (
    ResumePoint,
    find_earlier,
    may_lack,
    refuse_changed_recipe,
    refuse_changed_texts,
    refuse_unknown_keys,
    restore_memory,
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


def prepare(recipe: Recipe, folder: Path, *, quiet: bool = False) -> TaskData:
    """Does what a run of the recipe does with its data before its first step, and keeps it for `data.prepared`.

    Args:
        recipe: of the run.
        folder: where prepared data goes, whatever `data.prepared` says.
        quiet: show no progress.

    Raises:
        TransformerError: a wrong setting or unusable data.
    """
    data = recipe.data.model_copy(update={"prepared": None})
    with show_progress(quiet=quiet) as progress:
        task = make_task(data, recipe.training.seed, folder, progress)
        start = read_start(recipe, task.kinds)
        filled = task.complete(start.recipe if start else recipe)
        return task.prepare(filled, start.bundle if start else None)


def _refuse_early(training: TrainingConfig) -> None:
    """Refuses what this machine does not have before a corpus is prepared, which may take hours.

    Raises:
        ConfigError: there is no such device, precision or package.
    """
    choose_backend(training.device, training.precision)
    if training.tensorboard:
        require_tensorboard()


def assemble(
    given: Recipe,
    folder: Path,
    task: Task,
    allow_changed: Collection[str],
    notes: list[str],
    context: DistributedContext,
) -> Trainer:
    """Prepares data and model, from the start or from the newest checkpoint; rank 0 first, for the others to find."""
    _refuse_early(given.training)
    checkpoints = CheckpointManager(folder, given.training.keep_last, may_lack(allow_changed))
    with context.main_first():
        earlier = find_earlier(checkpoints)
        inputs = dict(task.sums)
        if earlier:
            refuse_changed_texts(earlier, inputs, given, allow_changed)
        start = None if earlier else read_start(given, task.kinds)
        given = inherit_settings(given, earlier.recipe) if earlier else start.recipe if start else given
        if earlier and given.training.batch_tokens == "auto":
            settled = given.training.model_copy(update={"batch_tokens": earlier.recipe.training.batch_tokens})
            given = given.model_copy(update={"training": settled})
        recipe = task.complete(given)
        refuse_unknown_keys(allow_changed, recipe)
        if earlier:
            refuse_changed_recipe(earlier, recipe, allow_changed)
        known = earlier.bundle if earlier else start.bundle if start else None
        material = task.prepare(recipe, known)
    if recipe.training.batch_tokens == "auto":
        recipe = _with_batch_tokens(recipe, task, material, context)
    epoch_steps = steps_per_epoch(material.train, recipe.training)
    completed = task.complete(recipe, epoch_steps, earlier.recipe if earlier else None)
    recipe = _with_hardware(completed, earlier, context)
    schedule = _schedule(recipe, material.config)
    backend = _hardware(recipe.training)
    model = _model(material.config, recipe.training, context)
    if start:
        labels = [config.model_dump().get("labels") for config in (start.bundle.config, material.config)]
        fresh = load_pretrained(model, start.bundle.model.state_dict(), same_labels=labels[0] == labels[1])
        notes = [*notes, f"new on top of the model: {', '.join(fresh)}"] if fresh else notes
    if earlier:
        restore_weights(earlier, model)
    distributed = distribute_model(_objective(task, model, recipe.training, material), model, context)
    optimizer = make_optimizer(distributed.model, recipe.training)
    progress = earlier.checkpoint.progress if earlier else Progress()
    if earlier:
        restore_memory(earlier, distributed.model, optimizer)
        notes = [*notes, *earlier.warnings, *computed_otherwise(earlier.bundle.provenance, backend.device.type)]
    if context.is_main:
        if earlier:
            checkpoints.remove_obsolete(progress)
        replace_text(folder / RECIPE_FILE, recipe.to_toml())
    training = recipe.training
    state = TrainingState(
        distributed.objective, optimizer, progress.step, training.seed, backend, training.log_every, context
    )
    notes = [*notes, *material.notes]
    origin = start.origin if start else earlier.bundle.provenance.get("start") if earlier else None
    return Trainer(
        folder, recipe, task, material, distributed, state, schedule, checkpoints, progress, inputs, notes, origin,
    )  # fmt: skip


def computed_otherwise(provenance: dict[str, Any], device: str) -> list[str]:
    """A warning where what computes, a kind of device, is not what computed before."""
    before = {**provenance.get("machine", {}), **provenance.get("versions", {})}
    if "device" not in before:  # of an earlier version
        return []
    now = {**machine(), "device": device, "torch": version("torch")}
    decisive = ("kernels" if device == "cpu" else "accelerator") if device == before["device"] else "device"
    changed = [key for key in (decisive, "torch") if before.get(key) != now.get(key)]
    shown = ", ".join(f"{key} {before.get(key, 'none')}, now {now.get(key, 'none')}" for key in changed)
    return [f"warning: what computes is not what computed before ({shown}); the last bits may differ"] if shown else []


def _hardware(training: TrainingConfig) -> Backend:
    return replace(choose_backend(training.device, training.precision), is_compiled=training.compile)


def _objective(task: Task, model: nn.Module, training: TrainingConfig, material: TaskData) -> nn.Module:
    objective = task.objective(model, training, material)
    if training.compile:
        compile_layers(objective)
    return objective


def _with_batch_tokens(recipe: Recipe, task: Task, material: TaskData, context: DistributedContext) -> Recipe:
    """Settles `batch_tokens="auto"` by trying batches on a model of the run's sizes; rank 0 decides."""
    training = recipe.training
    backend = _hardware(training)
    objective = _objective(task, _model(material.config, training, context), training, material)
    state = TrainingState(objective, make_optimizer(objective, training), 0, training.seed, backend)
    tokens = context.broadcast(choose_batch_tokens(state, material.train, training))
    return recipe.model_copy(update={"training": training.model_copy(update={"batch_tokens": tokens})})


def _with_hardware(recipe: Recipe, earlier: ResumePoint | None, context: DistributedContext) -> Recipe:
    """Sets precision and accumulation where the recipe leaves them open: the run's own, or what fits to the machines.

    That is the precision that they are fast in, and a micro-batch a rank; both are then the run's for good.
    """
    training = recipe.training
    before = earlier.recipe.training if earlier else training
    precision = choose_backend(training.device, training.precision or before.precision).precision
    accumulation = training.accumulation or before.accumulation or context.size
    update = {"precision": context.broadcast(precision), "accumulation": accumulation}
    return recipe.model_copy(update={"training": training.model_copy(update=update)})


def _model(config: Config, training: TrainingConfig, context: DistributedContext) -> nn.Module:
    """A new model on its device, if there is room for it."""
    build = family(str(config.model_dump()["family"])).build
    device = choose_backend(training.device, training.precision).device
    with torch.device("meta"):
        shapes = build(config)
    check_model_fits(shapes, device, context.size if training.distribution == "fsdp" else 1)
    reseed(training.seed)
    return build(config).to(device)


def _schedule(recipe: Recipe, config: Config) -> Schedule:
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
