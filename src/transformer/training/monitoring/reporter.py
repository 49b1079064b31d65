"""Reporting of a run: a progress bar or plain lines, and a JSON Lines file of metrics."""

import json
import math
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from transformer.data.augment.config import CHANGED
from transformer.data.language_pairs import PAIR_SCORE
from transformer.errors import escape_controls
from transformer.storage.atomic import named_errors, replace_text
from transformer.training.monitoring.layer_stats import BlockStats
from transformer.training.monitoring.progress import Progress as TrainingProgress
from transformer.training.monitoring.progress import Window
from transformer.training.monitoring.tensorboard import TensorBoard
from transformer.training.step import StepResult

ADVICE: Final = "free disk space, then resume with the same command"


class Reporter:
    """Writes `metrics.jsonl` and shows progress on standard error.

    Args:
        path: Metrics file to append to; None for a process that writes none.
        max_steps: Number of steps of the run.
        log_every: Steps between lines.
        start: Progress at which the run starts; lines of later steps, which will be repeated, are removed.
        unit: Unit that losses are averaged over, e.g. "tokens".
        quiet: Whether nothing is shown.
        tensorboard: TensorBoard writer that also receives all metrics.
    """

    def __init__(
        self,
        path: Path | None,
        max_steps: int,
        log_every: int,
        *,
        start: TrainingProgress | None = None,
        unit: str = "tokens",
        quiet: bool = False,
        tensorboard: TensorBoard | None = None,
    ) -> None:
        if path:
            _drop_lines_after(path, start or TrainingProgress())
        self._tensorboard = tensorboard
        self._writes_file = path is not None
        self._path = path or Path(os.devnull)
        with named_errors(self._path, ADVICE):
            self._file = self._path.open("a", encoding="utf-8")
        self._console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._log_every = log_every
        self._max_steps, self._unit = max_steps, unit
        self._description = f"first steps; figures every {log_every:,}"
        self._bar: Progress | None = None
        if self._console.is_terminal and not quiet:
            self._bar = Progress(
                BarColumn(10), TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
                TextColumn("{task.description}", markup=False), TimeRemainingColumn(), console=self._console,
            )  # fmt: skip
            self._task = self._bar.add_task(self._description, total=max_steps, completed=start.step if start else 0)
            self._bar.start()

    def log(self, text: str) -> None:
        """Prints one line."""
        self._console.print(escape_controls(text), markup=False)

    @contextmanager
    def waiting(self, what: str) -> Generator[None]:
        """Shows what the run waits for during the block: beside the progress bar on a terminal, as a line otherwise."""
        if self._bar is None:
            self.log(f"{what} ...")
        with self.busy(what):
            yield

    @contextmanager
    def busy(self, what: str) -> Generator[None]:
        """Shows beside the progress bar what the run does during the block; silent without a terminal."""
        before = self._describe(what)
        yield
        self._describe(before)

    def _describe(self, text: str) -> str:
        """Sets the text beside the bar, if there is one, and returns the one before it."""
        before, self._description = self._description, text
        if self._bar is not None:
            self._bar.update(self._task, description=text)
        return before

    def step(self, progress: TrainingProgress, result: StepResult, learning_rate: float) -> None:
        """Adds one update to the averages in `progress.window` and reports them every `log_every` steps."""
        step, window = progress.step, progress.window
        window.steps += 1
        window.tokens += result.count
        window.loss_sum += result.loss * result.count
        if self._bar is not None:
            self._bar.update(self._task, completed=step)
        if step % self._log_every:
            return
        metrics = {
            "step": step,
            "loss": window.loss_sum / window.tokens,
            "learning_rate": learning_rate,
            "gradient_norm": result.gradient_norm,
            "target_tokens": progress.target_tokens,
            "target_tokens_per_second": window.tokens / window.seconds,
        }
        self._write("train", metrics)
        if result.blocks:
            names = [field.name for field in fields(BlockStats)]
            by_name = {name: {block: getattr(stats, name) for block, stats in result.blocks.items()} for name in names}
            self._write("blocks", {"step": step, **by_name})
        speed = f"{metrics['target_tokens_per_second']:,.0f} {self._unit}/s"
        text = f"loss {metrics['loss']:.3f}  lr {learning_rate:.2e}  {speed}"
        if self._bar is not None:
            self._describe(text)
        else:
            seconds_left = (self._max_steps - step) * window.seconds / window.steps
            self.log(f"step {step}/{self._max_steps}  {text}  {_clock(seconds_left)} left")
        progress.window = Window()

    def skipped(self, step: int, reason: str) -> None:
        """Reports a batch that was skipped before the update of a step."""
        self._write("skipped", {"step": step, "reason": reason})
        self.log(f"warning: step {step}: batch skipped: {reason}")

    def validation(self, step: int, scores: dict[str, float], *, is_best: bool) -> None:
        """Reports the scores of a validation."""
        self._write("validation", {"step": step, **scores})
        text = describe_scores(scores, "  ")
        self.log(f"step {step}  validation: {text}{'  (best)' if is_best else ''}")

    def stage(self, step: int, name: str, *, is_entered: bool) -> None:
        """Reports the stage of the next update; the metrics record it where it begins."""
        if is_entered:
            self._write("stage", {"step": step, "stage": name})
        self.log(f"step {step}  stage {name}{'' if is_entered else ' continues'}")

    def refit(self, step: int, last: int) -> None:
        """Reports that a run whose time is limited was given another length, which the bar and the time left show."""
        self._write("refit", {"step": step, "max_steps": last})
        self.log(
            f"step {step}  by the measured speed the time is enough for {last:,} steps, planned {self._max_steps:,}"
        )
        self._max_steps = last
        if self._bar is not None:
            self._bar.update(self._task, total=last)

    def sync(self) -> None:
        """Waits until all lines are on disk, so that a checkpoint never refers to lines that were lost."""
        if self._writes_file:
            with named_errors(self._path, ADVICE):
                os.fsync(self._file.fileno())

    def average(self, steps: list[int], scores: dict[str, float]) -> None:
        """Reports the scores of an averaged model."""
        self._write("average", {"step": steps[-1], **scores})
        text = describe_scores(scores, "  ")
        self.log(f"average of steps {', '.join(map(str, steps))}  validation: {text}")

    def close(self) -> None:
        """Stops the progress bar and closes the files."""
        if self._bar is not None:
            self._bar.stop()
        with suppress(OSError):  # every line was flushed, or its error was reported
            self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _write(self, kind: str, values: dict[str, Any]) -> None:
        finite = _finite(values)
        with named_errors(self._path, ADVICE):
            self._file.write(json.dumps({"kind": kind, **finite}, allow_nan=False) + "\n")
            self._file.flush()
        if self._tensorboard is not None:
            self._tensorboard.write(kind, finite)


def _finite(value: Any) -> Any:
    """Replaces infinities and NaN, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _drop_lines_after(path: Path, start: TrainingProgress) -> None:
    """Removes lines of steps after the start, and a last line that was cut short when the process was killed.

    A batch that was skipped after the last update is recorded under the next step, and its line is kept.
    """
    step, n_skipped = start.step, start.skipped_nonfinite + start.skipped_unscored
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    kept: list[str] = []
    for line in lines:
        kind, line_step = _kind_and_step(line)
        is_counted_skip = kind == "skipped" and line_step <= step + 1 and n_skipped > 0
        n_skipped -= kind == "skipped"
        if line_step <= step or is_counted_skip:
            kept.append(line)
    replace_text(path, "".join(kept))


def _kind_and_step(line: str) -> tuple[str, float]:
    try:
        values = json.loads(line) if line.endswith("\n") else {}
        return str(values["kind"]), float(values["step"])
    except (ValueError, KeyError, TypeError):
        return "", math.inf


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"


def describe_scores(scores: Mapping[str, float], separator: str) -> str:
    """Returns the scores of a validation in a line, without those on changed pairs, which the report draws.

    Of several directions, BLEU of each follows the means; the report has the other scores.
    """
    means = {name: value for name, value in scores.items() if PAIR_SCORE not in name and not name.startswith(CHANGED)}
    texts = [f"{name} {value:.2f}" for name, value in means.items()]
    ending = f"{PAIR_SCORE}bleu"
    by_direction = {name.removesuffix(ending): value for name, value in scores.items() if name.endswith(ending)}
    if by_direction:
        texts.append(f"bleu of {', '.join(f'{direction} {value:.2f}' for direction, value in by_direction.items())}")
    return separator.join(texts)
