"""What a run tells: a progress bar or plain lines, and a line of JSON for every figure."""

import json
import math
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from transformer.training.step import StepResult


class Reporter:
    """Writes `metrics.jsonl` and shows progress on standard error.

    Args:
        path: of the metrics file, appended to.
        max_steps: length of the run.
        log_every: steps between lines.
        step: where the run starts; lines beyond it, of steps that will be done again, are removed.
        quiet: show nothing.
    """

    def __init__(self, path: Path, max_steps: int, log_every: int, *, step: int = 0, quiet: bool = False) -> None:
        _drop_beyond(path, step)
        self._file = path.open("a", encoding="utf-8")
        self._console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._log_every = log_every
        self._max_steps = max_steps
        self._bar: Progress | None = None
        if self._console.is_terminal and not quiet:
            self._bar = Progress(
                BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn(),
                console=self._console,
            )  # fmt: skip
            self._task = self._bar.add_task("", total=max_steps)
            self._bar.start()
        self._restart()

    def say(self, text: str) -> None:
        """One line for the reader."""
        self._console.print(text, markup=False)

    def step(self, step: int, result: StepResult, learning_rate: float) -> None:
        """Adds one update to the averages and shows them every `log_every` steps."""
        self._steps += 1
        self._tokens += result.count
        self._loss += result.loss * result.count
        if self._bar is not None:
            self._bar.update(self._task, completed=step)
        if step % self._log_every:
            return
        seconds = time.perf_counter() - self._since - self._paused
        figures = {
            "step": step,
            "loss": self._loss / self._tokens,
            "learning_rate": learning_rate,
            "gradient_norm": result.gradient_norm,
            "target_tokens_per_second": self._tokens / seconds,
        }
        self._write("train", figures)
        text = (
            f"loss {figures['loss']:.3f}  lr {learning_rate:.2e}  {figures['target_tokens_per_second']:,.0f} tokens/s"
        )
        if self._bar is not None:
            self._bar.update(self._task, description=text)
        else:
            left = (self._max_steps - step) * seconds / self._steps
            self.say(f"step {step}/{self._max_steps}  {text}  {_clock(left)} left")
        self._restart()

    def validation(self, step: int, scores: dict[str, float], seconds: float, *, is_best: bool) -> None:
        """Shows and writes the figures of a validation, whose seconds do not count as training."""
        self._paused += seconds
        self._write("validation", {"step": step, **scores})
        text = "  ".join(f"{name} {value:.2f}" for name, value in scores.items())
        self.say(f"step {step}  validation: {text}{'  (best)' if is_best else ''}")

    def close(self) -> None:
        """Ends the bar and the file."""
        if self._bar is not None:
            self._bar.stop()
        self._file.close()

    def _write(self, kind: str, figures: dict[str, Any]) -> None:
        finite = {key: value if math.isfinite(value) else None for key, value in figures.items()}
        self._file.write(json.dumps({"kind": kind, **finite}) + "\n")
        self._file.flush()

    def _restart(self) -> None:
        self._steps, self._tokens, self._loss = 0, 0, 0.0
        self._since, self._paused = time.perf_counter(), 0.0


def _drop_beyond(path: Path, step: int) -> None:
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(line for line in lines if json.loads(line)["step"] <= step), encoding="utf-8")


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
