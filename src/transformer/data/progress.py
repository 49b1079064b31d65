"""Progress of data preparation on standard error: a bar on a terminal, plain lines otherwise."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

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
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Bar(*columns, console=console, transient=True) as bar:
        tasks: dict[str, object] = {}

        def show(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)  # pyright: ignore[reportArgumentType]

        yield show


class _LineProgress:
    """Writes a line every ten seconds; a shorter stage writes none."""

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
            self._write_line(f"{stage}: {done:,}{of_total} pairs, {done / (now - self._started + 1e-9):,.0f} a second")
