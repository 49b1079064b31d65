"""The training loop: batches, updates, validations and checkpoints."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from transformer.data.prefetch import prefetch
from transformer.data.token_batching import batch_by_tokens
from transformer.errors import TrainingError
from transformer.interfaces import Dataset, Stage
from transformer.training.config import Interval, TrainingSettings
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.interruption import Interruption
from transformer.training.monitoring.progress import Position, Progress
from transformer.training.monitoring.reporter import Reporter
from transformer.training.optim.schedule import Schedule
from transformer.training.stages import MixedDataset, current_stage
from transformer.training.step import StepResult, TrainingState, first_nonfinite_parameter
from transformer.training.time_limit import TimeLimit, last_step, learning_rate
from transformer.training.update import BatchPlan, PreparedBatch, SkippedBatch, in_epoch, prepare_batch, train_on_batch

HIGHER_IS_BETTER = {"bleu": 1.0, "chrf": 1.0, "accuracy": 1.0, "loss": -1.0}


@dataclass(frozen=True)
class Callbacks:
    """Functions and objects that the loop calls.

    Attributes:
        validate: Function that returns the scores of the current model, including the recipe's `best_metric`.
        save: Function that writes a checkpoint.
        report: Reporter of metrics.
        interruption: Signal that requests an early end.
        limit: Clock, and the time at which the run has to end.
    """

    validate: Callable[[], dict[str, float]]
    save: Callable[[Progress], None]
    report: Reporter
    interruption: Interruption
    limit: TimeLimit = field(default_factory=TimeLimit)


def steps_per_epoch(dataset: Dataset, batch_tokens: int, seed: int) -> int:
    """Returns the number of updates of the first epoch; others differ if examples are weighted or segmented anew."""
    return len(batch_by_tokens(dataset.lengths, batch_tokens, seed, 0, dataset.mix))


def iterate_batches(dataset: Dataset, settings: TrainingSettings, position: Position) -> Iterator[BatchPlan]:
    """Yields the batches from a position on, each with the position after it; both depend only on seed and position."""
    epoch, first = position.epoch, position.index
    while True:
        lengths = in_epoch(dataset, epoch).lengths
        plan = batch_by_tokens(lengths, settings.batch_tokens, settings.seed, epoch, dataset.mix)
        for index, ids in enumerate(plan[first:], start=first + 1):
            yield BatchPlan(ids, epoch, Position(epoch, index) if index < len(plan) else Position(epoch + 1))
        epoch, first = epoch + 1, 0


def train(
    state: TrainingState,
    dataset: Dataset,
    settings: TrainingSettings,
    schedule: Schedule,
    progress: Progress,
    callbacks: Callbacks,
    stages: Sequence[Stage] = (),
) -> Progress:
    """Trains from `progress` to the end of training or to an interruption, one stage after another.

    Validates and saves at the recipe's intervals and at the end of a stage, and also saves when a validation is the
    best so far. Batches are planned and read in a background thread, a few ahead; the position counts only those that
    were used. A new stage begins a new epoch.

    Raises:
        TrainingError: A loss or a gradient is not finite more often than the recipe permits, or a whole epoch has no
            token to score.
    """
    pin_memory = state.backend.device.type == "cuda"
    prepare = partial(prepare_batch, dataset, state.context, settings.accumulation, pin_memory=pin_memory)
    stage = -1
    while (following := current_stage(stages, progress, settings)) != stage:
        is_entered, stage = stage >= 0 or not progress.step, following
        if stages:
            callbacks.report.stage(progress.step, stages[stage].name, is_entered=is_entered)
        mixed = MixedDataset(dataset, stages[stage].mix) if stages else dataset
        batch_plans = iterate_batches(mixed, settings, progress.position)
        epoch_steps = steps_per_epoch(mixed, settings.batch_tokens, settings.seed)
        with prefetch(batch_plans, prepare) as batches:
            is_over = partial(_is_over, stages, stage, progress, settings)
            _train(state, batches, epoch_steps, settings, schedule, progress, callbacks, is_over)
        if progress.finished or callbacks.interruption.requested:
            break
    return progress


def validate_start(state: TrainingState, settings: TrainingSettings, progress: Progress, callbacks: Callbacks) -> None:
    """Validates and saves a pretrained model before the first step, so that a worse one is never the best."""
    if not progress.step and not progress.validations:
        _validate(progress, settings, callbacks)
        _save(state, progress, callbacks)


def _train(
    state: TrainingState,
    batches: Iterable[PreparedBatch],
    epoch_steps: int,
    settings: TrainingSettings,
    schedule: Schedule,
    progress: Progress,
    callbacks: Callbacks,
    is_over: Callable[[], bool],
) -> None:
    """Trains to the end of a stage, of the run, or to an interruption."""
    skipped_in_a_row, saved_at = 0, progress.step
    limit, context = callbacks.limit, state.context
    progress.finished = finish_reason(progress, settings)
    limit.begin()
    started = limit.clock()
    for batch in batches:
        if progress.finished or context.should_stop(callbacks.interruption):
            break
        rate = learning_rate(schedule, state.step + 1, progress, settings)
        outcome = train_on_batch(state, batch, settings, rate, progress)
        progress.window.seconds += limit.clock() - started
        limit.count_update()
        ends_stage = is_over()
        progress.position = Position(batch.after.epoch + 1) if ends_stage and batch.after.index else batch.after
        is_updated = isinstance(outcome, StepResult)
        skipped_in_a_row = 0 if is_updated else skipped_in_a_row + 1
        if skipped_in_a_row >= epoch_steps:
            raise TrainingError(f"no batch of a whole epoch could be used; the last: {outcome}; check the data")
        _report(outcome, progress, rate, callbacks.report)
        is_last = ends_stage or state.step >= last_step(progress, settings) or limit.must_stop(context)
        is_among_best = False
        if (is_last or _is_due(settings.validate_every, progress, is_updated)) and not limit.is_over(context):
            is_among_best = _validate(progress, settings, callbacks)
            _refit(progress, settings, callbacks, context)
        progress.seconds += limit.clock() - started
        progress.finished = finish_reason(progress, settings) or _time_is_up(progress, settings, limit, context)
        is_scheduled = _is_due(settings.save_every, progress, is_updated)
        if is_scheduled and settings.average_last:
            progress.recent = [*progress.recent, progress.step][-settings.average_last :]
        is_due = is_among_best or progress.finished or is_scheduled
        if is_due and progress.step > saved_at:
            _save(state, progress, callbacks)
            saved_at = progress.step
        if ends_stage:
            break
        started = limit.clock()
    if progress.step > saved_at:
        _save(state, progress, callbacks)
    context.should_stop(callbacks.interruption)  # after a signal to one rank in the last step, all exit alike


def _is_over(stages: Sequence[Stage], stage: int, progress: Progress, settings: TrainingSettings) -> bool:
    """Whether the next update belongs to another stage."""
    return current_stage(stages, progress, settings) != stage


def _time_is_up(
    progress: Progress, settings: TrainingSettings, limit: TimeLimit, context: DistributedContext
) -> str | None:
    """Returns "max_seconds" if the clock ends the run now, which is recorded, so that a resumed run ends, too."""
    if not limit.must_stop(context):
        return None
    progress.out_of_time = settings.max_seconds
    return "max_seconds"


def _refit(progress: Progress, settings: TrainingSettings, callbacks: Callbacks, context: DistributedContext) -> None:
    """Changes the length of a run whose updates are slower or faster than planned."""
    refit = callbacks.limit.refit(progress, settings, context)
    if refit is not None:
        progress.refit = refit
        callbacks.report.refit(progress.step, refit.last)


def _save(state: TrainingState, progress: Progress, callbacks: Callbacks) -> None:
    """Writes a checkpoint if all parameters are finite.

    Raises:
        TrainingError: A parameter is not finite, e.g. after an update that was too large.
    """
    nonfinite = first_nonfinite_parameter(state.objective)
    if state.context.all_reduce_sum(nonfinite is not None)[0]:
        raise TrainingError(
            f"step {progress.step}: {nonfinite or 'a parameter of another rank'} is not finite after the update; "
            "checkpoints are unchanged; resume from the last with a lower rate (--set training.learning_rate=..., "
            "--allow-changed training.learning_rate)"
        )
    with callbacks.limit.saving():
        callbacks.save(progress)


def finish_reason(progress: Progress, settings: TrainingSettings) -> str | None:
    """Returns the key whose limit is reached, "max_steps", "max_seconds" or "patience"; None without any."""
    if progress.step >= last_step(progress, settings):
        return "max_steps"
    if settings.max_seconds and (
        progress.seconds >= settings.max_seconds or progress.out_of_time == settings.max_seconds
    ):
        return "max_seconds"
    return "patience" if settings.patience and progress.stale >= settings.patience else None


def _report(outcome: StepResult | SkippedBatch, progress: Progress, learning_rate: float, reporter: Reporter) -> None:
    if isinstance(outcome, StepResult):
        reporter.step(progress, outcome, learning_rate)
    else:
        reporter.skipped(progress.step + 1, outcome.reason)


def _is_due(interval: Interval, progress: Progress, is_updated: bool) -> bool:
    """Whether an interval ends: an epoch, even if its last batch was skipped, or a number of updates."""
    return progress.position.index == 0 if interval == "epoch" else is_updated and progress.step % interval == 0


def _validate(progress: Progress, settings: TrainingSettings, callbacks: Callbacks) -> bool:
    """Validates, then updates the best score and the patience, which counts only after the warm-up.

    A score that is not finite is never the best. Returns whether the model is one of the best and must be saved.
    """
    with callbacks.limit.validating():
        scores = callbacks.validate()
    score = HIGHER_IS_BETTER[settings.best_metric] * scores[settings.best_metric]
    # Even a model with NaN parameters has a BLEU score.
    is_valid = math.isfinite(score) and math.isfinite(scores.get("loss", 0.0))
    is_best = is_valid and (progress.best_score is None or score > progress.best_score)
    is_warm = progress.step > settings.warmup_steps
    progress.stale = 0 if is_best else progress.stale + is_warm
    progress.validations[progress.step] = scores
    if is_best:
        progress.best_step, progress.best_score = progress.step, score
    if is_valid:
        progress.leaders = _best_steps(progress, settings)
    callbacks.report.validation(progress.step, scores, is_best=is_best)
    return is_best or progress.step in progress.leaders


def _best_steps(progress: Progress, settings: TrainingSettings) -> list[int]:
    """Returns the best validated steps, including the current one, as many as are averaged; earlier steps win ties."""

    def score(step: int) -> float:
        return HIGHER_IS_BETTER[settings.best_metric] * progress.validations[step][settings.best_metric]

    return sorted([*progress.leaders, progress.step], key=score, reverse=True)[: max(1, settings.average_best)]
