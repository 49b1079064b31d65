"""`transformer export`: writes a model in a published format."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer.cli.progress import shown_while
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
    from transformer.bundle.huggingface import write_published  # loads torch

    del to  # the only one so far
    with shown_while(f"reading {model}"):
        bundle = load_bundle(model)
    with shown_while(f"writing {out}"):
        write_published(bundle, out)
    (kind,) = json.loads((out / "config.json").read_bytes())["architectures"]
    typer.echo(f"next: transformers.{kind}.from_pretrained({str(out)!r})")
