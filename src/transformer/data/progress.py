"""Progress of data preparation on standard error: a bar on a terminal, plain lines otherwise."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from transformer.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

Progress = Callable[[str, int, int | None], None]
"""Callback with the name of the stage, the number of items done, and their total, or None if it is unknown."""
LINE_SECONDS: Final = 10.0


def silent(stage: str, done: int, total: int | None) -> None:
    """Ignores progress."""


@contextmanager
def show_progress(*, quiet: bool = False) -> Generator[Progress]:
    """Yields a `Progress` that is displayed until the context ends."""
    from rich.console import Console

    if quiet:
        yield silent
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _LineProgress(lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True))
        return
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(20),
        TextColumn("{task.fields[count]}", markup=False), TimeElapsedColumn(),
    )  # fmt: skip
    with Bar(*columns, console=console, transient=True) as bar:
        yield _BarProgress(bar)


class _BarProgress:
    """Shows the current stage alone: its bar, its count, and the time since it began."""

    def __init__(self, bar: "Bar") -> None:
        self._bar, self._stage = bar, ""
        self._task: TaskID | None = None

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        count = f"{done:,} of {total:,}" if total else f"{done:,}" if done else ""
        if self._task is None or stage != self._stage:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task, self._stage = self._bar.add_task(printable(stage), total=total, count=count), stage
        self._bar.update(self._task, completed=done, total=total, count=count)


class _LineProgress:
    """Writes a line every ten seconds of a stage."""

    def __init__(self, write_line: Callable[[str], None]) -> None:
        self._write_line = write_line
        self._stage = ""
        self._started = self._last_written = 0.0

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._started, self._last_written = stage, now, now
        elif now - self._last_written >= LINE_SECONDS:
            self._last_written = now
            of_total = f" of {total:,} ({done / total:.0%})" if total else ""
            self._write_line(
                f"{printable(stage)}: {done:,}{of_total}, {done / (now - self._started + 1e-9):,.0f} a second"
            )
