"""Setup of a run: builds data, model and optimizer from a recipe and the start of the run."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from transformer.data.progress import Progress, show_progress, silent
from transformer.errors import ConfigError
from transformer.models import family
from transformer.models.kinds import ModelConfig
from transformer.models.size import has_common_sizes, model_size
from transformer.reporting.record import METRICS
from transformer.run.checkpoint_space import check_first_checkpoint
from transformer.run.fine_tuning import FineTunedStart, check_script, fine_tuned_start
from transformer.run.recipe import Recipe, fill_in_training
from transformer.run.resume import optional_files, resumed_start
from transformer.run.start import Start, new_start
from transformer.run.task import Task, TaskData
from transformer.run.tasks import make_task
from transformer.run.trainer import Trainer
from transformer.storage.atomic import replace_text
from transformer.training.backend import Backend, choose_backend
from transformer.training.checkpoint import CheckpointManager
from transformer.training.compilation import compile_layers
from transformer.training.config import TrainingConfig
from transformer.training.distributed.data_parallel import distribute_model
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.loop import finish_reason, steps_per_epoch
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
        start = fine_tuned_start(recipe, task) or new_start(recipe, task)
        task_data = task.prepare(start.recipe, start.bundle)
    if isinstance(start, FineTunedStart):
        task_data.notes.extend(check_script(task_data, start.bundle))
    return task_data


def build_trainer(
    user_recipe: Recipe,
    folder: Path,
    task: Task,
    allow_changed: Collection[str],
    notes: list[str],
    context: DistributedContext,
    progress: Progress = silent,
) -> Trainer:
    """Builds the trainer of a new, a fine-tuned or a resumed run; rank 0 prepares the data first."""
    _check_environment(user_recipe.training)
    _check_given_sizes(user_recipe, context)
    checkpoints = CheckpointManager(folder, user_recipe.training.keep_last, optional_files(allow_changed))
    with context.main_first():
        start = (
            resumed_start(user_recipe, task, allow_changed, checkpoints)
            or fine_tuned_start(user_recipe, task, allow_changed)
            or new_start(user_recipe, task, allow_changed)
        )
        if context.is_main and not start.progress.step:  # before the data is prepared, which may take hours
            _check_space(folder, _smallest_config(start.recipe), start.recipe.training)
        task_data = task.prepare(start.recipe, start.bundle)
        if isinstance(start, FineTunedStart):
            notes = [*notes, *check_script(task_data, start.bundle, allow_changed)]
    progress("building the model", 0, None)
    recipe = _complete_recipe(start.recipe, task, task_data, context)
    training, config = recipe.training, task_data.config
    if context.is_main and not finish_reason(start.progress, training):
        _check_space(folder, config, training)
    schedule = _make_schedule(training, config)
    backend = _choose_backend(training)
    model = _make_model(config, training, context)
    weight_notes = start.load_weights(model, config)
    distributed = distribute_model(_make_objective(task, model, training, task_data), model, context)
    optimizer = make_optimizer(distributed.model, training)
    start.restore_optimizer(distributed.model, optimizer)
    if context.is_main:
        checkpoints.remove_obsolete(start.progress)
        replace_text(folder / RECIPE_FILE, recipe.to_toml())
    state = TrainingState(
        distributed.objective, optimizer, start.progress.step, training.seed, backend, training.log_every, context
    )
    notes = [*notes, *_lost_checkpoints(folder, start), *weight_notes, *start.notes, *task_data.notes]
    return Trainer(
        folder, recipe, task, task_data, distributed, state, schedule, checkpoints, start.progress, notes, start.origin
    )


def _lost_checkpoints(folder: Path, start: Start) -> list[str]:
    """Returns a warning if the run was trained before, but its checkpoints were removed."""
    log = folder / METRICS
    if start.progress.step or not log.exists() or not log.stat().st_size:
        return []
    return [f"warning: {folder} has the log of an earlier run, but none of its checkpoints; training starts anew"]


def _check_environment(training: TrainingConfig) -> None:
    """Checks device, precision and packages before a corpus is prepared, which may take hours.

    Raises:
        ConfigError: A device, precision or package is not available.
    """
    choose_backend(training.device, training.precision)
    if training.tensorboard:
        require_tensorboard()


def _check_given_sizes(recipe: Recipe, context: DistributedContext) -> None:
    """Checks that a model of the sizes that a recipe gives could fit, with the smallest of vocabularies.

    Raises:
        ConfigError: The model does not fit.
    """
    if recipe.model is None or has_common_sizes(recipe.model):
        return
    _check_fits(_smallest_config(recipe), recipe.training, context)


def _smallest_config(recipe: Recipe) -> ModelConfig:
    """Returns the configuration of the model with the smallest vocabularies where the recipe gives none."""
    assert recipe.model is not None
    values = recipe.model.model_dump()
    vocabularies = {key: 1 for key, value in values.items() if key.endswith("vocab_size") and value is None}
    return recipe.model.model_copy(update=vocabularies)


def _check_space(folder: Path, config: ModelConfig, training: TrainingConfig) -> None:
    """Checks that a checkpoint of a model fits on the disk.

    Raises:
        OutputError: It does not.
    """
    check_first_checkpoint(folder, model_size(config).parameters, training)


def _complete_recipe(recipe: Recipe, task: Task, task_data: TaskData, context: DistributedContext) -> Recipe:
    """Fills in the keys that depend on the tokenized data or the device, all of which a resumed run keeps.

    The defaults of precision and accumulation are the fastest precision of the device and one micro-batch per rank.

    Raises:
        ConfigError: The weights of the corpora leave no example in the first epoch.
    """
    mix = task_data.train.mix
    if mix and not any(int(part.examples * part.weight) for part in mix):
        raise ConfigError(
            f"data.weights={[part.weight for part in mix]} leave none of "
            f"{sum(part.examples for part in mix):,} examples in an epoch; raise them"
        )
    if recipe.training.batch_tokens == "auto":
        recipe = _with_batch_tokens(recipe, task, task_data, context)
    recipe = task.complete(recipe, steps_per_epoch(task_data.train, recipe.training))
    precision = choose_backend(recipe.training.device, recipe.training.precision).precision
    return fill_in_training(recipe, {"precision": context.broadcast(precision), "accumulation": context.size})


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


def _make_model(config: ModelConfig, training: TrainingConfig, context: DistributedContext) -> nn.Module:
    """Builds a new model on its device, after a check that it fits into memory."""
    device = _check_fits(config, training, context)
    reseed(training.seed)
    return family(config.family_name).build(config).to(device)


def _check_fits(config: ModelConfig, training: TrainingConfig, context: DistributedContext) -> torch.device:
    """Checks that a model fits into the memory of its device, which is returned."""
    size, device = model_size(config), choose_backend(training.device, training.precision).device
    ranks = context.size if training.distribution == "fsdp" else 1
    check_model_fits(size.parameters, size.buffer_bytes, device, ranks)
    return device


def _make_schedule(training: TrainingConfig, config: ModelConfig) -> Schedule:
    assert training.decay_steps is not None
    assert training.warmup_steps is not None
    return make_schedule(
        training.schedule,
        d_model=config.d_model,
        peak=training.learning_rate,
        warmup_steps=training.warmup_steps,
        decay_steps=training.decay_steps,
    )
