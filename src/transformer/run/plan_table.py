"""The table that a run prints before its first step: data, model, training, device, memory."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from transformer.interfaces import Stage
from transformer.models.kinds import ModelConfig
from transformer.run.checkpoint_space import describe_space
from transformer.run.plan import TrainingPlan
from transformer.training.config import Interval, TrainingSettings
from transformer.training.loop import finish_reason
from transformer.training.monitoring.progress import Progress
from transformer.training.stages import stage_ends

Rows = list[tuple[str, str]]
"""Titles and texts."""
TITLE_WIDTH: Final = 12
WIDTH: Final = 80
"""Columns of a line; a longer text continues on further lines, below its beginning."""
SHOWN_ELSEWHERE: Final = ("family", "labels")
"""Keys of a model configuration that other rows of the table show; so do all whose names end in `vocab_size`."""
SCHEDULES: Final = {
    "cosine": "then a cosine to 0 at step {decay_steps:,}",
    "paper": "then by Equation 3 of the paper",
    "inverse_sqrt": "then falling with the square root of the step",
    "constant": "then constant",
}


def format_table(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Returns the lines of a table; of neighbours with the same title, the first shows it."""
    lines: list[str] = []
    shown = ""
    for title, text in rows:
        first = f"{'' if title == shown else title:<{TITLE_WIDTH}}"
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=first, subsequent_indent=" " * TITLE_WIDTH, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        shown = title
    return lines


def model_rows(config: ModelConfig, parameters: int) -> Rows:
    """Returns family and number of parameters of a model, and its settings except those that are off."""
    settings = (
        _setting(key, value)
        for key, value in config.model_dump().items()
        if key not in SHOWN_ELSEWHERE and not key.endswith(("vocab_size", "_id")) and not _is_off(value)
    )
    return [
        ("model", f"{config.family_name} ({config.kind}), {parameters:,} parameters"),
        ("model", ", ".join(settings)),
    ]


def training_rows(settings: TrainingSettings, epochs: float, peak_rate: float) -> Rows:
    """Returns length, learning rate, validations and checkpoints of a run.

    Args:
        settings: Settings of the training.
        epochs: Number of epochs of the run.
        peak_rate: Learning rate at the end of the warm-up.
    """
    parts = f" in {settings.accumulation:,} parts" if settings.accumulation > 1 else ""
    selected = "last" if settings.average_last else "best"
    averaged = f"; the {selected} {settings.n_averaged} are averaged" if settings.n_averaged else ""
    patience = f", patience {settings.patience}" if settings.patience else ""
    rest = SCHEDULES[settings.schedule].format(decay_steps=settings.decay_steps)
    steps = (
        f"{settings.max_steps:,} steps ({epochs:,.1f} epochs), each of up to {settings.batch_tokens:,} tokens{parts}"
    )
    return [
        ("training", steps),
        ("training", f"learning rate up to {peak_rate:.2g} after {settings.warmup_steps:,} steps of warm-up, {rest}"),
        ("validation", f"{_interval(settings.validate_every)}, best by {settings.best_metric}{patience}"),
        ("checkpoints", f"{_interval(settings.save_every)} and at the best validation{averaged}"),
    ]


def stage_rows(stages: Sequence[Stage], settings: TrainingSettings) -> Iterator[tuple[str, str]]:
    """Yields the steps and weights of each stage."""
    begin = 0
    for stage, end in zip(stages, stage_ends(stages, settings), strict=True):
        last = int(min(end, settings.max_steps))
        weights = ", ".join(f"{group.weight:g}" for group in stage.mix)
        yield "stages", f"{stage.name}: steps {begin + 1:,} to {last:,}, weights {weights}"
        begin = last


def _interval(interval: Interval) -> str:
    return "every epoch" if interval == "epoch" else f"every {interval:,} steps"


def _is_off(value: Any) -> bool:
    return value is None or value is False or value in (0, (), [], "")


def _setting(key: str, value: Any) -> str:
    """Returns a key and its value as people write them: no words of Python."""
    if value is True:
        return key
    if isinstance(value, list | tuple):
        return f"{key} {(' x ' if key.endswith('_size') else ' ').join(map(str, value))}"
    return f"{key} {value}"


def frozen_rows(frozen: Sequence[str], trained: int) -> Rows:
    """Returns what a run freezes, and the number of parameters that it trains; nothing if it trains all."""
    return [("model", f"{trained:,} parameters are trained; frozen: {', '.join(frozen)}")] if frozen else []


def plan_lines(plan: TrainingPlan, parameters: int, trained: int, progress: Progress) -> list[str]:
    """Returns the table of a plan, and notes on its schedule, its ranks and the place where it continues.

    Args:
        plan: Plan of the run.
        parameters: Number of parameters of the model.
        trained: Number of parameters that are trained.
        progress: Progress of the run so far.
    """
    settings, peak_rate = plan.settings, plan.schedule(plan.settings.warmup_steps)
    space, warning = describe_space(plan.folder, parameters, settings)
    return [
        *format_table([
            *plan.data.rows,
            *model_rows(plan.data.config, parameters),
            *frozen_rows(settings.freeze, trained),
            *plan.time.rows,
            *stage_rows(plan.data.stages, settings),
            *training_rows(settings, settings.max_steps / plan.steps_per_epoch, peak_rate),
            ("checkpoints", space),
            ("device", str(plan.backend)),
        ]),
        *([warning] if warning else []),
        *_notes(plan, peak_rate, progress),
    ]  # fmt: skip


def _notes(plan: TrainingPlan, peak_rate: float, progress: Progress) -> Iterator[str]:
    settings, accumulation, n_ranks = plan.settings, plan.settings.accumulation, plan.context.size
    if settings.schedule == "cosine" and settings.max_steps > max(settings.warmup_steps, settings.decay_steps):
        yield (
            f"note: the cosine schedule ends at step {settings.decay_steps:,}, after which the learning rate is 0; "
            f"extend it with --set training.decay_steps={settings.max_steps} --allow-changed training.decay_steps"
        )
    if settings.warmup_steps >= settings.max_steps:
        yield (
            f"note: the warm-up of {settings.warmup_steps:,} steps lasts as long as the run; set a shorter "
            "training.warmup_steps, and set training.learning_rate too, "
            "because its default rises as the warm-up gets shorter"
        )
    if plan.origin:
        yield (
            f"fine-tunes {plan.origin['model']} (SHA-256 {plan.origin['sha256'][:12]}...): learning rate up to "
            f"{peak_rate:.2g} after {settings.warmup_steps} steps of warm-up"
        )
    if settings.ema_decay:
        yield f"the model is the running mean of the parameters (decay {settings.ema_decay})"
    if settings.quantization_aware_steps:
        n_float = max(0, settings.max_steps - settings.quantization_aware_steps)
        yield f"after step {n_float:,}, products are rounded as in int8 inference (quantization-aware training)"
    if n_ranks > 1:
        n_idle = -accumulation % n_ranks
        idle = (
            f"; note: {n_idle} of them idle in the last round of each update; training.accumulation="
            f"{accumulation + n_idle} fits"
        )
        shares = {"ddp": "each with the whole model", "fsdp": "each with a part of the model"}[plan.context.strategy]
        yield f"{n_ranks} ranks, {shares}; micro-batches an update: {accumulation}{idle if n_idle else ''}"
    if finished := finish_reason(progress, settings):
        yield f"already finished by {finished} at step {progress.step}; raise training.{finished} to continue"
    elif progress.step:
        yield f"continues at step {progress.step}"
