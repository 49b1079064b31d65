"""`transformer prepare`: prepares the data of a run ahead of training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.corpus import takes_corpus
from transformer.cli.files import check_new_folder
from transformer.cli.paths import folder_option
from transformer.cli.progress import spinner
from transformer.cli.verbosity import is_quiet, takes_verbosity

if TYPE_CHECKING:
    from transformer.cli.corpus import Corpus


@takes_verbosity
@takes_corpus
def prepare(
    output_path: Annotated[
        Path,
        folder_option("folder for prepared data; several runs can share it", "--output"),
    ],
    *,
    corpus: "Corpus",
) -> None:
    """Read, check and encode a corpus ahead of training, and print a report on its pairs.

    A later `train` with the same settings and `--set data.prepared=FOLDER` starts at once. Data that is already
    prepared is reused.

    Example: transformer prepare corpus.en corpus.de --output prepared
    """
    check_new_folder(output_path, may_be_used=True)
    recipe = corpus.load()

    with spinner("loading PyTorch"):
        from transformer.run.plan import prepare_data
        from transformer.run.plan_table import format_table

    task_data = prepare_data(recipe, output_path, quiet=is_quiet())
    for line in (*task_data.notes, *format_table(task_data.rows)):
        typer.echo(line)
    typer.echo(f"next: transformer train ... --set data.prepared={output_path}")
