"""`transformer prepare`: prepares the data of a run ahead of training."""

from pathlib import Path
from typing import Annotated

import typer

from transformer.cli.paths import folder_path
from transformer.cli.train import data_options
from transformer.run.recipe import load_recipe


def prepare(
    output_path: Annotated[
        Path,
        typer.Option(
            "--output", help="folder for prepared data; several runs can share it", parser=folder_path, metavar="PATH"
        ),
    ],
    recipe: Annotated[Path | None, typer.Argument(help="recipe file (TOML)")] = None,
    source: Annotated[str | None, typer.Option(help="source text, one sentence per line")] = None,
    target: Annotated[str | None, typer.Option(help="its translation, aligned line by line")] = None,
    pairs: Annotated[
        str | None, typer.Option(help="file with both sides: .tsv, .csv, .jsonl, .parquet or .tmx")
    ] = None,
    languages: Annotated[
        str | None, typer.Option(help="source and target language to select from a .tmx file, e.g. en,de")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a recipe key, e.g. data.workers=2")
    ] = None,
) -> None:
    """Read, check and encode a corpus ahead of training, and print a report on its pairs.

    A later `train` with the same settings and `--set data.prepared=FOLDER` starts at once. Data that is already
    prepared is reused.

    Example: transformer prepare --source corpus.en --target corpus.de --output prepared
    """
    data = data_options(recipe, overrides, source, target, pairs, languages)
    loaded = load_recipe(recipe, overrides or (), {"data": data} if data else None)

    from transformer.run.setup import prepare_data  # loads torch

    task_data = prepare_data(loaded, output_path)
    for line in (*task_data.notes, *task_data.lines):
        typer.echo(line)
    typer.echo(f"next: transformer train ... --set data.prepared={output_path}")
