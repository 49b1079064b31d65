"""`transformer export`: writes a model in a published format."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer.cli.files import check_new_folder
from transformer.cli.paths import folder_option
from transformer.cli.progress import spinner
from transformer.cli.translate import ModelArgument
from transformer.cli.verbosity import say, takes_verbosity


@takes_verbosity
def export(
    model: ModelArgument,
    output_path: Annotated[Path, folder_option("folder to write; must be new or empty", "--output")],
    to: Annotated[
        Literal["hf"], typer.Option("--format", help="hf: Hugging Face folder, for transformers' from_pretrained")
    ] = "hf",
) -> None:
    """Write a model in the published format of its family, for other programs.

    Supports the families that have a published format, see `transformer info`, and models that were trained here.

    Example: transformer export runs/first --format hf --output first-hf
    """
    check_new_folder(output_path)
    from transformer.bundle import load_bundle
    from transformer.bundle.huggingface import write_published  # loads torch

    del to  # hf is the only format so far
    with spinner(f"reading {model}"):
        bundle = load_bundle(model, dequantize=True)
    if bundle.rounding_note:
        say(bundle.rounding_note)
    with spinner(f"writing {output_path}"):
        write_published(bundle, output_path)
    (kind,) = json.loads((output_path / "config.json").read_bytes())["architectures"]
    typer.echo(f"next: transformers.{kind}.from_pretrained({str(output_path)!r})")
