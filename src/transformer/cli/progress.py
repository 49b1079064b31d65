"""Progress of a command, shown on a terminal."""

import os
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from transformer.cli.verbosity import is_quiet, is_verbose, say

COUNTED_BYTES = 1 << 16


def progress_bar_beside(output: Path | None, what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    """Shows a progress bar, but is silent if results are printed on the same terminal.

    Args:
        output: File of the results; None is standard output.
        what: See `progress_bar`.
        total: See `progress_bar`.
    """
    if output is None and sys.stdout.isatty():
        return nullcontext(lambda more: None)
    return progress_bar(what, total)


@contextmanager
def spinner(what: str) -> Generator[None]:
    """Shows a spinner with an action and its duration on standard error; silent if that is not a terminal.

    Args:
        what: Description of the action, e.g. "reading model".
    """
    if not _is_shown():
        if is_verbose():
            say(f"{what} ...")
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        shown.add_task(what, total=None)
        yield


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Generator[Callable[[int], None]]:
    """Shows a progress bar with a counter and its rate on standard error; silent if that is not a terminal.

    Yields a function that adds to the counter.

    Args:
        what: Name of the counted items, e.g. "lines".
        total: Number of items, if known; it adds a bar and the remaining time.
    """
    if not _is_shown():
        done = 0

        def advance(more: int) -> None:
            nonlocal done
            done += more

        yield advance
        if is_verbose():
            say(f"{done:,} {what}")
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as TimeLeftColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.1f} {what}/s")

    count = TextColumn(
        f"{{task.completed:,.0f}} {what}" if total is None else f"{{task.completed:,.0f}} of {total:,} {what}"
    )
    columns = (
        (SpinnerColumn(), count, Rate(), TimeElapsedColumn()) if total is None
        else (BarColumn(), count, Rate(), TimeElapsedColumn(), TextColumn("left"), TimeLeftColumn())
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda more: bar.advance(task, more)


def count_lines(path: Path | None) -> int | None:
    """Returns the number of lines of a file; None if counting them would be slow, or for standard input."""
    from transformer.text.lines import COMPRESSIONS

    if path is None or not path.is_file() or path.suffix in COMPRESSIONS:
        return None
    with suppress(OSError), path.open("rb") as file:  # errors are reported when the file is read
        return sum(block.count(b"\n") for block in iter(lambda: file.read(COUNTED_BYTES), b""))
    return None


def _is_shown() -> bool:
    """Whether standard error is a terminal whose lines can be overwritten, and the command is not quiet."""
    return not is_quiet() and sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
