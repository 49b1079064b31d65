"""`transformer import`: converts a published model to a model folder."""

from pathlib import Path
from typing import Annotated

import typer

from transformer.cli.progress import shown_while


def import_model(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Hugging Face folder with config.json, safetensors weights and tokenizer files, or the name of one "
            "that is in the Hugging Face cache"
        ),
    ],
    out: Annotated[Path, typer.Option(help="folder for the converted model; must not exist")],
) -> None:
    """Convert a published model to a model folder that all commands of this program accept.

    Supports BERT, GPT-2, Llama, T5, ViT and OPUS-MT (Marian) models, see `transformer info`. Pickled weights, and
    unknown settings that change the result, are refused; other unknown settings are noted.

    Example: transformer import opus-mt-en-de --out en-de && echo "A man sleeps." | transformer translate en-de
    """
    from transformer.bundle import save_bundle
    from transformer.bundle.hub_cache import find_model
    from transformer.bundle.huggingface import read_published  # loads torch

    with shown_while(f"reading {folder}"):
        bundle = read_published(find_model(folder))
    with shown_while(f"writing {out}"):
        save_bundle(out, bundle)
    parameters = sum(parameter.numel() for parameter in bundle.model.parameters())
    typer.echo(f"{bundle.family} model of {parameters:,} parameters; next: transformer info {out}")
