"""The plan of a run: everything that its recipe leaves open, decided before the model is built."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from transformer.bundle import Bundle
from transformer.data.progress import Progress, show_progress, silent
from transformer.errors import ConfigError
from transformer.models import family
from transformer.models.kinds import ModelConfig
from transformer.models.size import has_common_sizes, model_size
from transformer.run.checkpoint_space import check_first_checkpoint
from transformer.run.defaults import CompleteRecipe, fill_in, fill_in_length
from transformer.run.fine_tuning import FineTunedStart, check_script, fine_tuned_start
from transformer.run.recipe import Recipe
from transformer.run.resume import continue_recipe, earlier_run, resumed_start
from transformer.run.setup import check_fits, new_model, new_objective
from transformer.run.start import SCRIPT, Start, new_start
from transformer.run.task import Task, TaskData
from transformer.run.tasks import make_task
from transformer.run.time_fit import PlannedTime, TimeFitter, longest_fit, resumed_time
from transformer.runtime.stopwatch import Stopwatch
from transformer.training.backend import Backend, choose_backend
from transformer.training.checkpoint import CheckpointManager
from transformer.training.config import TrainingSettings
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.freezing import KNOWN_TOKENS, freeze_parameters
from transformer.training.loop import finish_reason, steps_per_epoch
from transformer.training.monitoring.tensorboard import require_tensorboard
from transformer.training.optim.adam import make_optimizer
from transformer.training.optim.schedule import Schedule, make_schedule
from transformer.training.planning.plan import AUTO_FIRST, choose_batch_tokens
from transformer.training.stages import check_stages_fit
from transformer.training.step import TrainingState

TOKENS_FOLDER: Final = "tokens"


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A run whose settings are all decided.

    Attributes:
        folder: Run folder.
        recipe: Recipe with all decisions, as the run folder records it.
        checksums: SHA-256 of the training and validation files, by recipe key.
        data: Prepared data, with the model configuration, tokenizers, objective and scores of the task.
        settings: Settings of the training.
        schedule: Learning rate of each step, from 1.
        steps_per_epoch: Number of updates of the first epoch.
        backend: Device and precision.
        context: The ranks of the run.
        origin: Provenance entry of the pretrained model; empty if the run does not fine-tune one.
        notes: Notes on how the data fits the pretrained model, to be logged.
        time: Time of the run, which its length is fitted to.
    """

    folder: Path
    recipe: Recipe
    checksums: Mapping[str, str]
    data: TaskData
    settings: TrainingSettings
    schedule: Schedule
    steps_per_epoch: int
    backend: Backend
    context: DistributedContext
    origin: dict[str, Any]
    notes: list[str]
    time: PlannedTime


def make_plan(
    recipe: Recipe,
    checkpoints: CheckpointManager,
    allow_changed: Collection[str],
    context: DistributedContext,
    progress: Progress = silent,
    stopwatch: Stopwatch | None = None,
) -> tuple[TrainingPlan, Start]:
    """Plans a new, a fine-tuned or a resumed run, and prepares its data; rank 0 goes first.

    Args:
        recipe: Recipe as the user wrote it.
        checkpoints: Checkpoints of the run, whose folder holds the prepared data.
        allow_changed: Keys that may differ from those that the run began with.
        context: The ranks of the run.
        progress: Callback for progress reports.
        stopwatch: Time since the start of the command, which `training.minutes` limits; since now if None.

    Returns:
        The plan, and the start with the weights, which are needed only once.

    Raises:
        TransformerError: A subclass that describes the cause: an invalid setting, unusable data, or too little memory
            or disk space.
    """
    folder, stopwatch = checkpoints.run, stopwatch or Stopwatch()
    is_open = recipe.training.max_steps is None and recipe.training.decay_steps is None
    _check_early(recipe, context)
    with context.main_first():
        earlier = earlier_run(checkpoints)
        recipe = recipe if earlier is None else continue_recipe(recipe, earlier.recipe)
        task = make_task(recipe.data, recipe.training.seed, folder / TOKENS_FOLDER, progress)
        if earlier is not None:
            start = resumed_start(earlier, folder, recipe, task, allow_changed)
        else:
            start = fine_tuned_start(recipe, task, allow_changed) or new_start(recipe, task, allow_changed)
        completed = start.recipe
        _check_frozen(completed, start, context)
        if context.is_main and not start.progress.step:  # before the data is prepared, which may take hours
            smallest = model_size(_smallest_config(completed.model))
            check_first_checkpoint(folder, smallest.parameters, completed.recipe.training.ema_decay)
        data = task.prepare(completed, _task_bundle(start, task))
        notes = _script_notes(start, data, allow_changed)
    progress("building the model", 0, None)
    _check_weights(data)
    backend = _choose_backend(completed.recipe, context)
    batch_tokens = completed.recipe.training.batch_tokens
    if batch_tokens == "auto":
        batch_tokens = _choose_batch_tokens(completed, data, backend, context)
    first_epoch = steps_per_epoch(data.train, batch_tokens, completed.recipe.training.seed)
    time = None
    if completed.recipe.training.minutes is not None and earlier is None:
        progress("measuring the speed", 0, None)
        trial = _resolve(completed, data, batch_tokens, backend.precision, context.size).training
        fitter = TimeFitter(trial, backend, context, stopwatch, first_epoch)
        completed, data, time = fitter.fit(completed, data, completed.recipe.training.minutes)
    resolved = _resolve(completed, data, batch_tokens, backend.precision, context.size)
    settings = TrainingSettings.from_config(resolved.training)
    if context.is_main and not finish_reason(start.progress, settings):
        check_first_checkpoint(folder, model_size(data.config).parameters, settings.ema_decay)
    check_stages_fit(data.stages, settings)
    schedule = make_schedule(
        settings.schedule,
        d_model=data.config.d_model,
        peak=resolved.training.learning_rate,
        warmup_steps=settings.warmup_steps,
        decay_steps=settings.decay_steps,
    )
    if time is None:
        is_fitted = is_open and resolved.training.minutes is not None
        longest = longest_fit(completed.epochs, first_epoch) if is_fitted else 0
        time = resumed_time(settings, start.progress, longest)
    plan = TrainingPlan(
        folder=folder, recipe=resolved, checksums=task.checksums, data=data, settings=settings, schedule=schedule,
        steps_per_epoch=first_epoch, backend=backend, context=context, origin=start.origin, notes=notes, time=time,
    )  # fmt: skip
    return plan, start


def prepare_data(recipe: Recipe, folder: Path, *, quiet: bool = False) -> TaskData:
    """Prepares the data of a recipe ahead of a run, for use as `data.prepared`.

    Args:
        recipe: Recipe of the run.
        folder: Folder for the prepared data; overrides `data.prepared`.
        quiet: Whether to hide progress.

    Raises:
        TransformerError: A setting is invalid, or the data cannot be used.
    """
    with show_progress(quiet=quiet) as progress:
        task = make_task(recipe.data.model_copy(update={"prepared": None}), recipe.training.seed, folder, progress)
        start = fine_tuned_start(recipe, task) or new_start(recipe, task)
        data = task.prepare(start.recipe, _task_bundle(start, task))
    data.notes.extend(_script_notes(start, data, (SCRIPT,)))
    return data


def _task_bundle(start: Start, task: Task[Any]) -> Bundle | None:
    """Returns the bundle whose tokenizers encode the data; a fine-tuned run may extend them first.

    Raises:
        ConfigError: The recipe extends tokenizers, but there are none, or they do not allow it.
    """
    bundle = start.task_bundle
    if start.recipe.recipe.tokenizer.added_pieces is None:
        return bundle
    if bundle is None:
        raise ConfigError(
            "tokenizer.added_pieces extends the tokenizer of a trained model; give --from MODEL, or raise "
            "tokenizer.vocab_size"
        )
    return task.extend_tokenizers(start.recipe, bundle) if isinstance(start, FineTunedStart) else bundle


def _check_frozen(completed: CompleteRecipe[ModelConfig], start: Start, context: DistributedContext) -> None:
    """Checks `training.freeze` on a model without values, before a corpus is prepared, which may take hours.

    Raises:
        ConfigError: It matches no parameter or all, or names known tokens of a new model.
    """
    frozen = completed.recipe.training.freeze or ()
    if not frozen:
        return
    if KNOWN_TOKENS in frozen and not start.origin:
        raise ConfigError(f"training.freeze={KNOWN_TOKENS!r} needs a model to start from; give --from MODEL")
    if KNOWN_TOKENS in frozen and context.size > 1 and context.strategy == "fsdp":
        raise ConfigError(f"training.freeze={KNOWN_TOKENS!r} does not work with training.distribution=fsdp; use ddp")
    with torch.device("meta"):
        freeze_parameters(family(completed.model.family_name).build(_smallest_config(completed.model)), frozen)


def _script_notes(start: Start, data: TaskData, allow_changed: Collection[str]) -> list[str]:
    if not isinstance(start, FineTunedStart):
        return []
    return check_script(data.fallback_shares, start.bundle, allow_changed)


def _check_early(recipe: Recipe, context: DistributedContext) -> None:
    """Checks device, precision, packages and given sizes before a corpus is prepared, which may take hours.

    Raises:
        ConfigError: A device, precision or package is not available, or a model of the sizes that the recipe gives does
            not fit, even with the smallest of vocabularies.
    """
    device = choose_backend(recipe.training.device, recipe.training.precision).device
    if recipe.training.tensorboard:
        require_tensorboard()
    if recipe.model is not None and not has_common_sizes(recipe.model):
        check_fits(_smallest_config(recipe.model), device, context)


def _smallest_config(model: ModelConfig) -> ModelConfig:
    """Returns the configuration of the model with the smallest vocabularies where the recipe gives none."""
    values = model.model_dump()
    return model.model_copy(update={key: 1 for key in values if key.endswith("vocab_size") and values[key] is None})


def _check_weights(data: TaskData) -> None:
    """Checks that the weights of the corpora leave an example in the first epoch.

    Raises:
        ConfigError: They leave none.
    """
    mix = data.train.mix
    if mix and not any(int(part.examples * part.weight) for part in mix):
        raise ConfigError(
            f"data.weights={[part.weight for part in mix]} leave none of "
            f"{sum(part.examples for part in mix):,} examples in an epoch; raise them"
        )


def _choose_backend(recipe: Recipe, context: DistributedContext) -> Backend:
    """Returns the device of this rank and the fastest precision of the device of rank 0, unless the recipe sets one."""
    training = recipe.training
    backend = choose_backend(training.device, training.precision)
    return replace(backend, precision=context.broadcast(backend.precision), is_compiled=training.compile)


def _resolve(
    completed: CompleteRecipe[ModelConfig], data: TaskData, batch_tokens: int, precision: str, accumulation: int
) -> Recipe:
    """Fills in the keys that depend on the prepared data or the device, all of which a resumed run keeps."""
    recipe = completed.recipe.with_keys("training", {"batch_tokens": batch_tokens})
    recipe = fill_in_length(recipe, completed.epochs, steps_per_epoch(data.train, batch_tokens, recipe.training.seed))
    return fill_in(recipe, "training", {"precision": precision, "accumulation": accumulation})


def _choose_batch_tokens(
    completed: CompleteRecipe[ModelConfig], data: TaskData, backend: Backend, context: DistributedContext
) -> int:
    """Resolves `batch_tokens="auto"` by trying batches on a model of the run's size; rank 0 decides."""
    trial = TrainingSettings.from_config(_resolve(completed, data, AUTO_FIRST, backend.precision, 1).training)
    model = new_model(data.config, trial.seed, backend, context)
    objective = new_objective(data, model, trial)
    optimizer = make_optimizer(objective, trial.adam_betas, trial.adam_eps, trial.weight_decay)
    state = TrainingState(objective, optimizer, 0, trial.seed, backend)
    return context.broadcast(choose_batch_tokens(state, data.examples, trial.accumulation))
