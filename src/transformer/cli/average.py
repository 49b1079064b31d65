"""`transformer average`: averages several checkpoints of one training run."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer.cli.arguments import JsonObjectOption
from transformer.cli.files import check_new_folder
from transformer.cli.paths import folder_option
from transformer.cli.verbosity import takes_verbosity
from transformer.errors import ConfigError, counted


@takes_verbosity
def average(
    models: Annotated[
        list[Path], typer.Argument(help="run folder with --last or --best, or several models, oldest first")
    ],
    output_path: Annotated[
        Path,
        folder_option("folder for the averaged model; must not exist", "--output"),
    ],
    last: Annotated[int | None, typer.Option(min=1, help="average the latest N checkpoints of the run")] = None,
    best: Annotated[
        int | None, typer.Option(min=1, help="average the N checkpoints with the best validation scores")
    ] = None,
    as_json: JsonObjectOption = False,
) -> None:
    """Average the parameters of several models of one training run.

    A run keeps as many checkpoints as training.average_last or training.average_best requires. The averaged model
    is not validated; score it with transformer evaluate.

    Example: transformer average runs/first --last 5 --output averaged
    """
    check_new_folder(output_path)
    if last is None and best is None and len(models) < 2:
        raise ConfigError(f"{models[0]} is a single model; give several models, or a run folder with --last or --best")
    if last is not None and best is not None:
        raise ConfigError("--last and --best are mutually exclusive; give only one")
    paths = models
    if last is not None:
        paths = _checkpoints_of_run(models, "last", last)
    elif best is not None:
        paths = _checkpoints_of_run(models, "best", best)

    from transformer.bundle import save_bundle
    from transformer.run.checkpoint_averaging import average_bundles  # loads torch

    save_bundle(output_path, average_bundles(paths))
    if as_json:
        typer.echo(json.dumps({"folder": str(output_path), "averaged": [str(path) for path in paths]}))
        return
    typer.echo(f"averaged {counted(len(paths), 'model')}: {', '.join(map(str, paths))}")
    typer.echo(f"next: transformer evaluate {output_path} --source FILE --reference FILE")


def _checkpoints_of_run(models: list[Path], option: Literal["last", "best"], count: int) -> list[Path]:
    if len(models) > 1:
        raise ConfigError(
            f"--last and --best select checkpoints of one run, but {len(models)} paths are given; give one run folder"
        )

    from transformer.storage.checkpoint_paths import MODEL, checkpoint_folder, checkpoint_steps

    steps = checkpoint_steps(models[0]) if option == "last" else _best_steps(models[0])
    if len(steps) < count:
        raise ConfigError(
            f"{models[0]} keeps {counted(len(steps), 'checkpoint')}, but --{option} {count} asks for more; ask for "
            f"fewer, or train with training.average_{option}={count}"
        )
    chosen = steps[-count:] if option == "last" else sorted(steps[:count])
    return [checkpoint_folder(models[0], step) / MODEL for step in chosen]


def _best_steps(run: Path) -> list[int]:
    """Returns the validated steps whose checkpoints the run keeps, best first."""
    from transformer.training.checkpoint import CheckpointManager  # loads torch

    newest = CheckpointManager(run).latest()
    return [] if newest is None else newest.progress.leaders
