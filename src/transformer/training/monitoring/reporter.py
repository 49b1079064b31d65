"""What a run tells: a progress bar or plain lines, and a line of JSON for every figure."""

import json
import math
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from transformer.storage.atomic import replace_text
from transformer.training.monitoring.layer_stats import BlockStats
from transformer.training.monitoring.progress import Progress as TrainingProgress
from transformer.training.monitoring.progress import Window
from transformer.training.monitoring.tensorboard import TensorBoard
from transformer.training.step import StepResult


class Reporter:
    """Writes `metrics.jsonl` and shows progress on standard error.

    Args:
        path: of the metrics file, appended to; None writes nothing, for a process that is not to.
        max_steps: length of the run.
        log_every: steps between lines.
        start: where the run starts; lines beyond it, of steps that will be done again, are removed.
        unit: what losses are a mean over, see `Task`.
        quiet: show nothing.
        tensorboard: is told every figure too.
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
            _drop_beyond(path, start or TrainingProgress())
        self._tensorboard = tensorboard
        self._is_kept = path is not None
        self._file = (path or Path(os.devnull)).open("a", encoding="utf-8")
        self._console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._log_every = log_every
        self._max_steps, self._scored = max_steps, unit
        self._bar: Progress | None = None
        if self._console.is_terminal and not quiet:
            self._bar = Progress(
                BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn(),
                console=self._console,
            )  # fmt: skip
            self._task = self._bar.add_task("", total=max_steps)
            self._bar.start()

    def log(self, text: str) -> None:
        """One line for the reader."""
        self._console.print(text, markup=False)

    def step(self, progress: TrainingProgress, result: StepResult, learning_rate: float) -> None:
        """Adds one update to the averages, which are in `progress.window`, and shows them every `log_every` steps."""
        step, window = progress.step, progress.window
        window.steps += 1
        window.tokens += result.count
        window.loss_sum += result.loss * result.count
        if self._bar is not None:
            self._bar.update(self._task, completed=step)
        if step % self._log_every:
            return
        figures = {
            "step": step,
            "loss": window.loss_sum / window.tokens,
            "learning_rate": learning_rate,
            "gradient_norm": result.gradient_norm,
            "target_tokens": progress.target_tokens,
            "target_tokens_per_second": window.tokens / window.seconds,
        }
        self._write("train", figures)
        if result.blocks:
            names = [figure.name for figure in fields(BlockStats)]
            by_figure = {name: {block: getattr(of, name) for block, of in result.blocks.items()} for name in names}
            self._write("blocks", {"step": step, **by_figure})
        speed = f"{figures['target_tokens_per_second']:,.0f} {self._scored}/s"
        text = f"loss {figures['loss']:.3f}  lr {learning_rate:.2e}  {speed}"
        if self._bar is not None:
            self._bar.update(self._task, description=text)
        else:
            left = (self._max_steps - step) * window.seconds / window.steps
            self.log(f"step {step}/{self._max_steps}  {text}  {_clock(left)} left")
        progress.window = Window()

    def skipped(self, step: int, reason: str) -> None:
        """A batch that was left out before the update of that step."""
        self._write("skipped", {"step": step, "reason": reason})
        self.log(f"warning: step {step}: batch left out: {reason}")

    def validation(self, step: int, scores: dict[str, float], *, is_best: bool) -> None:
        """Shows and writes the figures of a validation."""
        self._write("validation", {"step": step, **scores})
        text = "  ".join(f"{name} {value:.2f}" for name, value in scores.items())
        self.log(f"step {step}  validation: {text}{'  (best)' if is_best else ''}")

    def sync(self) -> None:
        """Waits until the lines so far are on disk, as a checkpoint that goes on after them needs."""
        if self._is_kept:
            os.fsync(self._file.fileno())

    def average(self, steps: list[int], scores: dict[str, float]) -> None:
        """Shows and writes the figures of an averaged model."""
        self._write("average", {"step": steps[-1], **scores})
        text = "  ".join(f"{name} {value:.2f}" for name, value in scores.items())
        self.log(f"average of steps {', '.join(map(str, steps))}  validation: {text}")

    def close(self) -> None:
        """Ends the bar and the file."""
        if self._bar is not None:
            self._bar.stop()
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _write(self, kind: str, figures: dict[str, Any]) -> None:
        finite = _finite(figures)
        self._file.write(json.dumps({"kind": kind, **finite}, allow_nan=False) + "\n")
        self._file.flush()
        if self._tensorboard is not None:
            self._tensorboard.write(kind, finite)


def _finite(value: Any) -> Any:
    """The same with None for every number that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _drop_beyond(path: Path, start: TrainingProgress) -> None:
    """Keeps the whole lines of steps up to the start; the last may have been cut short by a kill.

    A batch that was left out after the last update is told of as of the next step, which is not done yet.
    """
    step, left_out = start.step, start.skipped_nonfinite + start.skipped_unscored
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    kept: list[str] = []
    for line in lines:
        kind, of = _kind_and_step(line)
        is_told = kind == "skipped" and of <= step + 1 and left_out > 0
        left_out -= kind == "skipped"
        if of <= step or is_told:
            kept.append(line)
    replace_text(path, "".join(kept))


def _kind_and_step(line: str) -> tuple[str, float]:
    try:
        found = json.loads(line) if line.endswith("\n") else {}
        return str(found["kind"]), float(found["step"])
    except (ValueError, KeyError, TypeError):
        return "", math.inf


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
