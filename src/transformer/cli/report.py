"""`transformer report`: writes the report of a run."""

from pathlib import Path
from typing import Annotated

import typer


def report(run: Annotated[Path, typer.Argument(help="run folder")]) -> None:
    """Write RUN/report.html again: curves, scores, examples, worst sentences, recipe, versions.

    A run writes it at its end; this works at any time, also while it goes on.

    Example: transformer report runs/first
    """
    from transformer.reporting import write_report  # loads torch

    typer.echo(f"report: {write_report(run)}")
