"""The table that a run prints before its first step: data, model, training, device, memory."""

import textwrap
from collections.abc import Iterable
from typing import Any, Final

from transformer.models.kinds import ModelConfig
from transformer.training.config import TrainingConfig

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


def training_rows(training: TrainingConfig, epochs: float, peak_rate: float) -> Rows:
    """Returns length, learning rate, validations and checkpoints of a run.

    Args:
        training: Completed training section of the recipe.
        epochs: Number of epochs of the run.
        peak_rate: Learning rate at the end of the warm-up.
    """
    accumulation = training.accumulation or 1
    batch = f"{training.budget:,} tokens" + (f" in {accumulation:,} parts" if accumulation > 1 else "")
    n_averaged = training.average_last or training.average_best
    averaged = f"; the {'last' if training.average_last else 'best'} {n_averaged} are averaged" if n_averaged else ""
    patience = f", patience {training.patience}" if training.patience else ""
    return [
        ("training", f"{training.max_steps:,} steps ({epochs:,.1f} epochs), each of up to {batch}"),
        ("training", _learning_rate(training, peak_rate)),
        ("validation", f"{_interval(training.validate_every)}, best by {training.best_metric}{patience}"),
        ("checkpoints", f"{_interval(training.save_every)} and at the best validation{averaged}"),
    ]


def _learning_rate(training: TrainingConfig, peak_rate: float) -> str:
    warmup_steps, decay_steps = training.warmup_steps or 0, training.decay_steps or 0
    rest = SCHEDULES[training.schedule].format(decay_steps=decay_steps)
    return f"learning rate up to {peak_rate:.2g} after {warmup_steps:,} steps of warm-up, {rest}"


def _interval(interval: int | str | None) -> str:
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
