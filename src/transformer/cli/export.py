"""`transformer export`: one of our models in a published format."""

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

    Models of families with a published format are written: so far Marian.

    Example: transformer export en-de --format hf --out opus-mt-en-de-again
    """
    from transformer.bundle import load_bundle
    from transformer.published import write_published  # loads torch

    del to  # the only one so far
    write_published(load_bundle(model), out)
    typer.echo(f"next: transformers.AutoModelForSeq2SeqLM.from_pretrained({str(out)!r})")
