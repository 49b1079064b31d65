"""`transformer export`: one of our models in a published format."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer.cli.translate import ModelArgument


def export(
    model: ModelArgument,
    out: Annotated[Path, typer.Option(help="folder to write; must be new or empty")],
    to: Annotated[Literal["hf"], typer.Option("--format", help="hf: the folder that transformers loads")] = "hf",
) -> None:
    """Write a model in the format of its family, for other programs.

    Families with a published format are written, see `transformer info`; so is what was trained here.

    Example: transformer export runs/first --format hf --out first-hf
    """
    from transformer.bundle import load_bundle
    from transformer.published import write_published  # loads torch

    del to  # the only one so far
    write_published(load_bundle(model), out)
    (kind,) = json.loads((out / "config.json").read_bytes())["architectures"]
    typer.echo(f"next: transformers.{kind}.from_pretrained({str(out)!r})")
