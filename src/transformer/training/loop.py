"""The loop: batches in order, steps, validations, checkpoints."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from transformer.data.batches import plan_epoch
from transformer.data.prefetch import prefetch
from transformer.errors import TrainingError
from transformer.interfaces import Dataset
from transformer.training.config import Interval, TrainingConfig
from transformer.training.interruption import Interruption
from transformer.training.monitoring.progress import Position, Progress
from transformer.training.monitoring.reporter import Reporter
from transformer.training.optim.schedule import Schedule
from transformer.training.step import StepResult, TrainingState, first_not_finite
from transformer.training.update import Fetched, Skipped, fetch, update

HIGHER_IS_BETTER = {"bleu": 1.0, "chrf": 1.0, "accuracy": 1.0, "loss": -1.0}


@dataclass(frozen=True)
class Hooks:
    """What the loop calls and does not know.

    Attributes:
        validate: figures of the model as it is; holds the recipe's `best_metric`.
        save: writes a checkpoint of the given progress.
        report: shows figures.
        interruption: asks for an early end.
    """

    validate: Callable[[], dict[str, float]]
    save: Callable[[Progress], None]
    report: Reporter
    interruption: Interruption


def steps_per_epoch(source: Dataset, settings: TrainingConfig) -> int:
    """Updates of the first epoch; of every epoch where all examples are seen once in each."""
    return len(plan_epoch(source.lengths, settings.budget, settings.seed, 0, source.mix))


def batches_from(
    source: Dataset, settings: TrainingConfig, position: Position
) -> Iterator[tuple[NDArray[np.uint32], Position]]:
    """The batches from a position on, each with the position after it: a function of seed and position alone."""
    epoch, first = position.epoch, position.index
    while True:
        plan = plan_epoch(source.lengths, settings.budget, settings.seed, epoch, source.mix)
        for index, ids in enumerate(plan[first:], start=first + 1):
            yield ids, Position(epoch, index) if index < len(plan) else Position(epoch + 1)
        epoch, first = epoch + 1, 0


def train(
    state: TrainingState,
    source: Dataset,
    settings: TrainingConfig,
    schedule: Schedule,
    progress: Progress,
    hooks: Hooks,
) -> Progress:
    """Runs from `progress` to the end of training or to an interruption.

    Validates and saves at the recipe's intervals and at the end; saves also when a validation is the best so far.
    Batches are planned and read in a background thread, a few ahead; the position counts those that were used.

    Raises:
        TrainingError: a loss or a gradient is not finite more often than the recipe lets pass, or a whole epoch has no
            token to score.
    """
    planned = batches_from(source, settings, progress.position)
    ready = partial(fetch, source, state.world, settings.accumulation or 1)
    with prefetch(planned, ready) as batches:
        return _train(state, batches, steps_per_epoch(source, settings), settings, schedule, progress, hooks)


def _train(
    state: TrainingState,
    batches: Iterable[Fetched],
    epoch_steps: int,
    settings: TrainingConfig,
    schedule: Schedule,
    progress: Progress,
    hooks: Hooks,
) -> Progress:
    assert settings.max_steps is not None
    assert settings.validate_every is not None
    assert settings.save_every is not None
    idle, saved_at = 0, progress.step
    progress.finished = why_finished(progress, settings)
    started = time.perf_counter()
    for batch in batches:
        if progress.finished or state.world.should_stop(hooks.interruption):
            break
        learning_rate = schedule(state.step + 1)
        outcome = update(state, batch, settings, learning_rate, progress)
        progress.window.seconds += time.perf_counter() - started
        progress.position = batch.after
        updated = isinstance(outcome, StepResult)
        idle = 0 if updated else idle + 1
        if idle >= epoch_steps:
            raise TrainingError(f"no batch of a whole epoch could be used; the last: {outcome}; look at the data")
        _report(outcome, progress, learning_rate, hooks.report)
        is_last = state.step >= settings.max_steps
        improved = False
        if is_last or _is_due(settings.validate_every, progress, updated):
            improved = _validate(progress, settings, hooks)
        progress.finished = why_finished(progress, settings)
        progress.seconds += time.perf_counter() - started
        scheduled = _is_due(settings.save_every, progress, updated)
        if scheduled and settings.average_last:
            progress.recent = [*progress.recent, progress.step][-settings.average_last :]
        is_due = improved or progress.finished or scheduled
        if is_due and progress.step > saved_at:
            _save(state, progress, hooks)
            saved_at = progress.step
        started = time.perf_counter()
    if progress.step > saved_at:
        _save(state, progress, hooks)
    return progress


def _save(state: TrainingState, progress: Progress, hooks: Hooks) -> None:
    """Writes a checkpoint, but not of parameters that a too large update has ruined.

    Raises:
        TrainingError: a parameter is not finite.
    """
    ruined = first_not_finite(state.objective)
    if state.world.total(ruined is not None)[0]:
        raise TrainingError(
            f"step {progress.step}: {ruined or 'a parameter of another rank'} is not finite after the update; "
            "checkpoints are as before; go on from the last with a lower rate (--set training.learning_rate=..., "
            "--allow-changed training.learning_rate)"
        )
    hooks.save(progress)


def why_finished(progress: Progress, settings: TrainingConfig) -> str | None:
    """The key whose limit is reached: "max_steps" or "patience"; None while training can go on."""
    assert settings.max_steps is not None
    if progress.step >= settings.max_steps:
        return "max_steps"
    return "patience" if settings.patience and progress.stale >= settings.patience else None


def _report(outcome: StepResult | Skipped, progress: Progress, learning_rate: float, reporter: Reporter) -> None:
    if isinstance(outcome, StepResult):
        reporter.step(progress, outcome, learning_rate)
    else:
        reporter.skipped(progress.step + 1, outcome.reason)


def _is_due(interval: Interval, progress: Progress, updated: bool) -> bool:
    """At the end of an epoch, whether its last batch was used or not; else after an update with a round number."""
    return progress.position.index == 0 if interval == "epoch" else updated and progress.step % interval == 0


def _validate(progress: Progress, settings: TrainingConfig, hooks: Hooks) -> bool:
    """Validates and updates best and patience, which counts once the warm-up is over; NaN is never the best.

    Returns whether the model is one of the best, to be kept.
    """
    scores = hooks.validate()
    score = HIGHER_IS_BETTER[settings.best_metric] * scores[settings.best_metric]
    counts = math.isfinite(score) and math.isfinite(scores.get("loss", 0.0))  # a model of NaN has a BLEU too
    is_best = counts and (progress.best_score is None or score > progress.best_score)
    is_warm = progress.step > (settings.warmup_steps or 0)
    progress.stale = 0 if is_best else progress.stale + is_warm
    progress.validations[progress.step] = scores
    if is_best:
        progress.best_step, progress.best_score = progress.step, score
    if counts:
        progress.leaders = _leaders(progress, settings)
    hooks.report.validation(progress.step, scores, is_best=is_best)
    return is_best or progress.step in progress.leaders


def _leaders(progress: Progress, settings: TrainingConfig) -> list[int]:
    """The best validated steps so far, this one included, as many as are to be averaged; the earlier wins a tie."""

    def score(step: int) -> float:
        return HIGHER_IS_BETTER[settings.best_metric] * progress.validations[step][settings.best_metric]

    return sorted([*progress.leaders, progress.step], key=score, reverse=True)[: settings.average_best or 1]
