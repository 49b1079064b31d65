"""The loop: batches in order, steps, validations, checkpoints."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer.data.batches import plan_epoch, split_micro
from transformer.protocols import Source
from transformer.training.checkpoint import Progress
from transformer.training.interruption import Interruption
from transformer.training.report import Reporter
from transformer.training.schedule import Schedule
from transformer.training.settings import Interval, TrainingSettings
from transformer.training.step import TrainingState, train_step

HIGHER_IS_BETTER = {"bleu": 1.0, "chrf": 1.0, "loss": -1.0}


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


def steps_per_epoch(source: Source, settings: TrainingSettings) -> int:
    """Updates in which every example is seen once; the same for every epoch."""
    return len(plan_epoch(source.lengths, settings.batch_tokens, settings.seed, epoch=0))


def batches_from(source: Source, settings: TrainingSettings, step: int) -> Iterator[NDArray[np.int64]]:
    """The batches of all updates from `step` on: a function of the seed and the step alone."""
    epoch, index = divmod(step, steps_per_epoch(source, settings))
    while True:
        yield from plan_epoch(source.lengths, settings.batch_tokens, settings.seed, epoch)[index:]
        epoch, index = epoch + 1, 0


def train(
    state: TrainingState,
    source: Source,
    settings: TrainingSettings,
    schedule: Schedule,
    progress: Progress,
    hooks: Hooks,
) -> Progress:
    """Runs from `progress` to the end of training or to an interruption.

    Validates and saves at the recipe's intervals and at the end; saves also when a validation is the best so far.

    Raises:
        TrainingError: a loss is not finite.
    """
    assert settings.max_steps is not None
    assert settings.validate_every is not None
    assert settings.save_every is not None
    epoch_steps = steps_per_epoch(source, settings)
    saved_at = progress.step
    progress.finished = why_finished(progress, settings)
    for ids in batches_from(source, settings, state.step):
        if progress.finished or hooks.interruption.requested:
            break
        started = time.perf_counter()
        learning_rate = schedule(state.step + 1)
        micro_batches = [source.fetch(part) for part in split_micro(ids, settings.accumulation)]
        result = train_step(state, micro_batches, learning_rate, settings.clip_norm)
        progress.step = state.step
        hooks.report.step(state.step, result, learning_rate)
        is_last = state.step >= settings.max_steps
        improved = False
        if is_last or _is_due(settings.validate_every, state.step, epoch_steps):
            improved = _validate(progress, settings, hooks)
        progress.finished = why_finished(progress, settings)
        progress.seconds += time.perf_counter() - started
        if improved or progress.finished or _is_due(settings.save_every, state.step, epoch_steps):
            hooks.save(progress)
            saved_at = progress.step
    if progress.step > saved_at:
        hooks.save(progress)
    return progress


def why_finished(progress: Progress, settings: TrainingSettings) -> str | None:
    """The key whose limit is reached: "max_steps" or "patience"; None while training can go on."""
    assert settings.max_steps is not None
    if progress.step >= settings.max_steps:
        return "max_steps"
    return "patience" if settings.patience and progress.stale >= settings.patience else None


def _is_due(interval: Interval, step: int, epoch_steps: int) -> bool:
    return step % (epoch_steps if interval == "epoch" else interval) == 0


def _validate(progress: Progress, settings: TrainingSettings, hooks: Hooks) -> bool:
    """Validates and updates best and patience, which counts once the warm-up is over; NaN is never the best."""
    started = time.perf_counter()
    progress.scores = hooks.validate()
    seconds = time.perf_counter() - started
    score = HIGHER_IS_BETTER[settings.best_metric] * progress.scores[settings.best_metric]
    is_best = math.isfinite(score) and (progress.best_score is None or score > progress.best_score)
    is_warm = progress.step > (settings.warmup_steps or 0)
    progress.stale = 0 if is_best else progress.stale + is_warm
    progress.scored_step = progress.step
    if is_best:
        progress.best_step, progress.best_score = progress.step, score
        progress.best_scores = dict(progress.scores)
    hooks.report.validation(progress.step, progress.scores, seconds, is_best=is_best)
    return is_best
