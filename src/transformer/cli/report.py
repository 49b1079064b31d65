"""`transformer report`: writes the report of a run."""

from pathlib import Path
from typing import Annotated

import typer


def report(run: Annotated[Path, typer.Argument(help="run folder")]) -> None:
    """Write RUN/report.html: curves, scores, examples, worst sentences, recipe and versions.

    A run writes it when it ends; this command works at any time, even during training.

    Example: transformer report runs/first
    """
    from transformer.reporting import write_report  # loads torch

    typer.echo(f"report: {write_report(run)}")
