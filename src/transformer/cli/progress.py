"""How far a command is, on a terminal."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def counted(what: str, total: int | None = None) -> Generator[Callable[[int], None]]:
    """A counter on standard error, to be told how many more are done; silent where that is no terminal.

    Args:
        what: is counted, e.g. "lines looked at".
        total: how many there are, if that is known.
    """
    if not sys.stderr.isatty():
        yield lambda more: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shown = SpinnerColumn() if total is None else BarColumn()
    columns = shown, TextColumn(f"{{task.completed:,}} {what}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda more: bar.advance(task, more)
