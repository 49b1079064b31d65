"""`transformer average`: averages several checkpoints of one training."""

from pathlib import Path
from typing import Annotated

import typer

from transformer.errors import ConfigError


def average(
    models: Annotated[list[Path], typer.Argument(help="run folder, with --last or --best; or models, oldest first")],
    out: Annotated[Path, typer.Option(help="folder of the averaged model; must not exist")],
    last: Annotated[int | None, typer.Option(min=1, help="number of latest checkpoints of the run to average")] = None,
    best: Annotated[int | None, typer.Option(min=1, help="number of best checkpoints on validation to average")] = None,
) -> None:
    """Average the parameters of several models of one training.

    A run keeps as many checkpoints as training.average_last or training.average_best ask for. The mean is not
    validated here: see transformer evaluate.

    Example: transformer average runs/first --last 5 --out averaged
    """
    if last is None and best is None and len(models) < 2:
        raise ConfigError(
            f"{models[0]} alone has no average; give several models, or a run folder with --last or --best"
        )
    paths = models if last is None and best is None else _of_run(models, last, best)

    from transformer.bundle import save_bundle
    from transformer.run.checkpoint_averaging import average_bundles  # loads torch

    save_bundle(out, average_bundles(paths))
    typer.echo(f"mean of {len(paths)} models: {', '.join(map(str, paths))}")
    typer.echo(f"next: transformer evaluate {out} --source FILE --reference FILE")


def _of_run(models: list[Path], last: int | None, best: int | None) -> list[Path]:
    if last is not None and best is not None:
        raise ConfigError("--last and --best exclude each other; give one of them")
    if len(models) > 1:
        raise ConfigError(
            f"--last and --best choose from one run, but {len(models)} paths are given; give one run folder"
        )

    from transformer.storage.checkpoints import MODEL, checkpoint_folder, checkpoint_steps

    steps = checkpoint_steps(models[0]) if best is None else _best_steps(models[0])
    wanted, option = (last, "last") if best is None else (best, "best")
    assert wanted is not None
    if len(steps) < wanted:
        raise ConfigError(
            f"{models[0]} keeps {len(steps)} checkpoints, but --{option} {wanted} asks for more; ask for fewer, or "
            f"train with training.average_{option}={wanted}"
        )
    chosen = steps[-wanted:] if best is None else sorted(steps[:wanted])
    return [checkpoint_folder(models[0], step) / MODEL for step in chosen]


def _best_steps(run: Path) -> list[int]:
    """Returns the validated steps whose checkpoints the run keeps, best first."""
    from transformer.training.checkpoint import CheckpointManager  # loads torch

    newest = CheckpointManager(run).latest()
    return [] if newest is None else newest.progress.leaders
