"""How far the preparation of data is: a bar on a terminal, plain lines elsewhere, on standard error."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

Progress = Callable[[str, int, int | None], None]
"""Told the stage, how much of it is done, and of how much, where that is known."""
LINE_SECONDS: Final = 10.0


def silent(stage: str, done: int, total: int | None) -> None:
    """Shows nothing."""


@contextmanager
def show_progress(*, quiet: bool = False) -> Generator[Progress]:
    """A `Progress` that is shown until the context ends."""
    from rich.console import Console

    if quiet:
        yield silent
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(lambda line: console.print(line, highlight=False, soft_wrap=True))
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


class _Lines:
    """A line every ten seconds; what is done sooner is not worth one."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._stage = ""
        self._started = self._said = 0.0

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._started, self._said = stage, now, now
        elif now - self._said >= LINE_SECONDS:
            self._said = now
            of_total = f" of {total:,} ({done / total:.0%})" if total else ""
            self._say(f"{stage}: {done:,}{of_total} pairs, {done / (now - self._started + 1e-9):,.0f} a second")
