"""`transformer import`: converts a published model to a model folder."""

from pathlib import Path
from typing import Annotated

import typer

from transformer.cli.files import check_new_folder
from transformer.cli.hub import keep_model, obtain_model
from transformer.cli.paths import folder_option
from transformer.cli.progress import spinner
from transformer.cli.search import language_of
from transformer.cli.verbosity import takes_verbosity
from transformer.errors import ConfigError


@takes_verbosity
def import_model(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Hugging Face folder with config.json, weights and tokenizer files, or the name of a published "
            "model, which is downloaded"
        ),
    ],
    output_path: Annotated[
        Path | None,
        folder_option(
            "folder for the converted model; must not exist; not needed for a name, under which it is kept", "--output"
        ),
    ] = None,
    source_language: Annotated[
        str | None, typer.Option(metavar="TAG", help="source language, e.g. en; default: as its tokenizer says")
    ] = None,
    target_language: Annotated[
        str | None, typer.Option(metavar="TAG", help="target language, e.g. zh-Hant; default: likewise")
    ] = None,
) -> None:
    """Convert a published model to a model folder that all commands of this program accept.

    Supports BERT, GPT-2, Llama, T5, ViT and OPUS-MT (Marian) models, see `transformer info`. Pickled weights
    (pytorch_model.bin) are read in a process of its own, as tensors alone. Unknown settings that change the result are
    refused; other unknown settings are noted.

    Example: transformer import Helsinki-NLP/opus-mt-en-de --output en-de && transformer translate en-de "A man sleeps."
    """
    if output_path is None:
        _keep(folder, source_language or target_language)
        return
    check_new_folder(output_path)
    from transformer.bundle import load_bundle, save_bundle  # loads torch
    from transformer.bundle.hub_cache import find_model
    from transformer.bundle.huggingface import read_published
    from transformer.bundle.kept_models import kept_models
    from transformer.bundle.languages import language_entries, recorded_languages
    from transformer.models import family

    source = language_of("--source-language", source_language)
    target = language_of("--target-language", target_language)
    existing = next(parent for parent in output_path.absolute().parents if parent.exists())
    path = find_model(obtain_model(folder))
    with spinner(f"reading {folder}"):
        bundle = load_bundle(path) if path in kept_models().values() else read_published(path, unpickle_in=existing)
    if source or target:
        if family(bundle.family).kind != "encoder-decoder":
            raise ConfigError(
                f"a {bundle.family} model does not translate; leave out --source-language and --target-language"
            )
        recorded = recorded_languages(bundle)
        bundle.provenance |= language_entries(source or recorded[0], target or recorded[1])
    with spinner(f"writing {output_path}"):
        save_bundle(output_path, bundle)
    parameters = sum(parameter.numel() for parameter in bundle.model.parameters())
    typer.echo(f"{bundle.family} model of {parameters:,} parameters; next: transformer info {output_path}")


def _keep(name: Path, language: str | None) -> None:
    """Downloads a published model to keep it under its name.

    Raises:
        ConfigError: It is not the name of a published model, or has languages to record.
    """
    from transformer.bundle.hub_cache import may_be_published  # loads torch
    from transformer.bundle.kept_models import kept_models

    if language is not None or not may_be_published(name) or name.exists():
        raise ConfigError(f"{name} is converted to a folder; add --output FOLDER")
    known = kept_models().get(name.as_posix())
    typer.echo(f"{name} is kept in {known or keep_model(name.as_posix())}; next: transformer info {name}")
