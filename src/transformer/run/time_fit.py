"""Fits model, length and schedule of a run into `training.minutes`, by the speed that is measured on this machine."""

import statistics
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from transformer.data.token_batching import batch_by_tokens, split_micro
from transformer.errors import ConfigError
from transformer.models.kinds import ModelConfig
from transformer.models.size import model_size
from transformer.run.checkpoint_space import checkpoint_bytes
from transformer.run.defaults import MIN_STEPS, CompleteRecipe, fill_in
from transformer.run.recipe import Recipe
from transformer.run.setup import new_model, new_objective
from transformer.run.task import TaskData
from transformer.runtime.stopwatch import Stopwatch
from transformer.training.backend import Backend
from transformer.training.config import TrainingConfig, TrainingSettings
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.monitoring.progress import Progress
from transformer.training.optim.adam import make_optimizer
from transformer.training.optim.schedule import paper_peak
from transformer.training.planning.plan import describe_seconds
from transformer.training.planning.time_budget import MARGIN, MIN_UPDATES, Costs, FittedLength, best_size, fit_length
from transformer.training.step import TrainingState, train_step
from transformer.training.time_limit import TimeLimit

N_WARM: Final = 2
"""Updates before those that are timed, because the first ones fill caches."""
N_TIMED: Final = 8
"""Maximum number of updates of which the median duration counts."""
MAX_TIMING_SHARE: Final = 0.01
"""Share of the time after which no further update of a model is timed."""
WRITE_BYTES_PER_SECOND: Final = 1e8
"""Speed at which a slow disk stores checkpoints."""
REPORT_SECONDS: Final = 8.0
"""Time for the report and the curve at the end."""
TRIALS: Final = 12
"""Batches that are tried before the first step, see `plan_run`."""
MAX_TIMES_EPOCHS: Final = 3
"""Largest number of epochs, relative to that of a run without a given time."""
VALIDATION_UPDATE: Final = 0.5
"""Time of the loss of some validation tokens, relative to an update on as many, which has a backward pass, too."""


NOT_MEASURED: Final = Costs(0.0, 0.0)


@dataclass(frozen=True)
class PlannedTime:
    """Time of a run.

    Attributes:
        whole: Seconds from the start of the command to the last checkpoint; infinite if this start has no limit.
        costs: Duration of an update and a validation, 0 if they were not measured.
        longest: Largest number of updates to which the run may be extended; 0 if its length is set.
        rows: Rows for the table of the plan.
    """

    whole: float = inf
    costs: Costs = NOT_MEASURED
    longest: int = 0
    rows: tuple[tuple[str, str], ...] = ()

    def limit(self, settings: TrainingSettings, progress: Progress, stopwatch: Stopwatch) -> TimeLimit:
        """Returns the limit of the training loop, which starts now."""
        clock = stopwatch.clock
        left = settings.max_seconds - progress.seconds if settings.max_seconds else inf
        deadline = min(clock() + left, stopwatch.started + self.whole)
        return TimeLimit(clock, deadline, self.costs.update, self.costs.validation, longest=self.longest)


@dataclass(frozen=True)
class _Trial:
    """A model that was tried.

    Attributes:
        data: Data with the configuration of the model.
        model: The model, which is thrown away.
        settings: Settings of the trial.
        update: Seconds of an update.
        tokens: Mean number of target tokens of an update.
    """

    data: TaskData
    model: nn.Module
    settings: TrainingSettings
    update: float
    tokens: float


@dataclass(frozen=True)
class TimeFitter:
    """Measures models and fits a run.

    Attributes:
        training: The `training` section without unset keys that do not depend on the time, see `fit`.
        backend: Device and precision.
        context: The ranks of the run, of which rank 0 decides.
        stopwatch: Time since the start of the command.
        steps_per_epoch: Number of updates of the first epoch.
    """

    training: TrainingConfig
    backend: Backend
    context: DistributedContext
    stopwatch: Stopwatch
    steps_per_epoch: int

    def fit(
        self, completed: CompleteRecipe[ModelConfig], data: TaskData, minutes: float
    ) -> tuple[CompleteRecipe[ModelConfig], TaskData, PlannedTime]:
        """Chooses the model, if the recipe leaves it open, and fits the keys of `training` that are not set.

        Args:
            completed: The recipe.
            data: Prepared data.
            minutes: Time of the whole command, preparation included.

        Returns:
            Recipe and data with the chosen values, and the planned time.

        Raises:
            ConfigError: The time is too short for some updates and a validation.
        """
        chosen, name = self._choose(completed, data, 60 * minutes - self.stopwatch.seconds)
        costs, start, end = self._costs(chosen)
        training = completed.recipe.training
        seconds = min(60 * minutes - start - end, training.max_seconds or inf)
        longest = longest_fit(completed.epochs, self.steps_per_epoch)
        interval = self.steps_per_epoch if training.validate_every == "epoch" else training.validate_every
        length = fit_length(seconds, costs, longest, training.max_steps, interval)
        if length is None:
            needed = start + end + (MIN_UPDATES * costs.update + costs.validation) / (1 - MARGIN)
            raise ConfigError(
                f"training.minutes={minutes:g} is too short: the start takes {start:.0f} s, the end {end:.0f} s, an "
                f"update {costs.update:.2g} s and a validation {costs.validation:.2g} s; give at least "
                f"{np.ceil(needed / 6) / 10:g}"
            )
        model = completed.sizes.get(name, completed.model)
        recipe = _with_length(completed.recipe.model_copy(update={"model": model}), chosen.data.config, length, seconds)
        rows = _rows(minutes, self.stopwatch.seconds, name if len(completed.sizes) > 1 else "", costs, length)
        is_open = training.max_steps is None and training.decay_steps is None
        planned = PlannedTime(60 * minutes - end, costs, longest if is_open else 0, tuple(rows))
        return CompleteRecipe(recipe, model, completed.epochs), chosen.data, planned

    def _costs(self, trial: _Trial) -> tuple[Costs, float, float]:
        """Measures a validation; returns all durations, and the seconds before and after the training loop."""
        generating, n_validation, n_calibration = self._time_generation(trial)
        passes = trial.data.validation_positions() / trial.settings.batch_tokens
        bytes_saved = checkpoint_bytes(model_size(trial.data.config).parameters, trial.settings.ema_decay)
        save = bytes_saved / WRITE_BYTES_PER_SECOND
        validation = generating * n_validation + VALIDATION_UPDATE * trial.update * passes + save
        start = self.stopwatch.seconds + TRIALS * trial.update + 2 * generating
        end = REPORT_SECONDS + generating * n_calibration + (validation if trial.settings.n_averaged else 0.0)
        update, validation, start, end = self.context.broadcast([trial.update, validation, start, end])
        return Costs(update, validation), start, end

    def _choose(self, completed: CompleteRecipe[ModelConfig], data: TaskData, seconds: float) -> tuple[_Trial, str]:
        """Tries the models from small to large, and returns the best with its name, see `best_size`.

        The first that is expected to be worse than the one before, or does not fit into memory, ends the search.
        """
        sizes: dict[str, tuple[float, float]] = {}
        best: tuple[_Trial, str] | None = None
        for name, model in completed.sizes.items() or [("", completed.model)]:
            known = data.config.model_dump()
            unset = {key: known.get(key) for key, value in model.model_dump().items() if value is None}
            config = model.updated(**{key: value for key, value in unset.items() if value is not None})
            try:
                trial = self._try(replace(data, config=config), seconds)
            except ConfigError:
                if best is None:
                    raise
                break
            tokens = max(1.0, trial.tokens * (1 - MARGIN) * seconds / max(trial.update, 1e-9))
            sizes[name] = (_parameters_of_layers(config), tokens)
            if self.context.broadcast(best_size(sizes)) != name:
                break
            best = trial, name
        if best is None:
            raise ValueError("there is a model to try")
        return best

    def _try(self, data: TaskData, seconds: float) -> _Trial:
        """Measures the duration of an update of a new model; ranks compute at the same time, and the slowest counts."""
        settings = TrainingSettings.from_config(self.training)
        model = new_model(data.config, settings.seed, self.backend, self.context)
        objective = new_objective(data, model, settings)
        optimizer = make_optimizer(objective, settings.adam_betas, settings.adam_eps, settings.weight_decay)
        state = TrainingState(objective, optimizer, 0, settings.seed, self.backend)
        train = data.train
        batches = batch_by_tokens(train.lengths, settings.batch_tokens, settings.seed, 0, train.mix)
        durations: list[float] = []
        for number in range(N_WARM + N_TIMED):
            ids = split_micro(batches[number % len(batches)], settings.accumulation)[0]
            with _timed(self.backend, self.stopwatch, durations):
                train_step(state, [train.fetch(ids)], 0.0, settings.clip_norm)
            spent = round(1e6 * sum(durations[N_WARM:]))
            if self.context.all_reduce_max(spent) > 1e6 * MAX_TIMING_SHARE * seconds:
                break
        median = round(1e6 * statistics.median(durations[N_WARM:] or durations[-1:]))
        update = self.context.all_reduce_max(median) / 1e6 * self.context.max_items_per_rank(settings.accumulation)
        tokens = float(np.mean([train.lengths[ids, -1].sum() for ids in batches[:256]]))
        return _Trial(data, model, settings, update, tokens)

    def _time_generation(self, trial: _Trial) -> tuple[float, float, float]:
        """Returns the duration of generating a batch of texts, and how many a validation and the calibration have."""
        durations: list[float] = []
        with _timed(self.backend, self.stopwatch, durations):
            validation, calibration = trial.data.sample_generation(trial.model, trial.settings)
        return durations[0], validation, calibration


def longest_fit(epochs: int, steps_per_epoch: int) -> int:
    """Returns the largest number of updates that a run is given, however long its time is."""
    return MAX_TIMES_EPOCHS * max(MIN_STEPS, epochs * steps_per_epoch)


@contextmanager
def _timed(backend: Backend, stopwatch: Stopwatch, durations: list[float]) -> Generator[None]:
    """Appends the duration of the block."""
    started = stopwatch.seconds
    yield
    if backend.device.type == "cuda":
        torch.cuda.synchronize(backend.device)
    durations.append(stopwatch.seconds - started)


def _parameters_of_layers(config: ModelConfig) -> int:
    """Returns the number of parameters beside those of the vocabulary, which take hardly any time."""
    values = config.model_dump()
    return model_size(config.model_copy(update={key: 1 for key in values if key.endswith("vocab_size")})).parameters


def _with_length(recipe: Recipe, config: ModelConfig, length: FittedLength, seconds: float) -> Recipe:
    """Fills in the keys of `training` that are fitted; a short warm-up has the peak of the shortest usual one."""
    training = recipe.training
    values: dict[str, Any] = {
        "max_seconds": seconds, "max_steps": length.max_steps, "warmup_steps": length.warmup_steps,
        "validate_every": length.validate_every, "save_every": length.save_every,
    }  # fmt: skip
    if training.warmup_steps is None and training.schedule != "paper":
        values["learning_rate"] = paper_peak(config.d_model, max(length.warmup_steps, MIN_STEPS // 5))
    return fill_in(recipe, "training", values)


def _rows(minutes: float, used: float, name: str, costs: Costs, length: FittedLength) -> Iterator[tuple[str, str]]:
    validations = -(-length.max_steps // length.validate_every)
    chosen = f"{name}, " if name else ""
    yield (
        "time limit",
        f"fits {minutes:g} minutes, of which preparation took {describe_seconds(used)}: {chosen}{length.max_steps:,} "
        f"updates of about {costs.update:.2g} s, {validations:,} validations of about {costs.validation:.2g} s",
    )
    if length.max_steps * costs.update + validations * costs.validation > 60 * minutes - used:
        yield "time limit", "the steps that are set take longer; the clock will end the run"


def resumed_time(settings: TrainingSettings, progress: Progress, longest: int) -> PlannedTime:
    """Returns the time of a run that continues, or of one whose length is not fitted."""
    if not settings.max_seconds:
        return PlannedTime()
    left = max(0.0, settings.max_seconds - progress.seconds)
    text = f"{describe_seconds(settings.max_seconds)} of training, of which {describe_seconds(left)} are left"
    update = progress.seconds / progress.step if progress.step else 0.0
    return PlannedTime(costs=Costs(update, 0.0), longest=longest, rows=(("time limit", text),))
