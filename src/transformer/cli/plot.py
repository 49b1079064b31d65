"""`transformer plot`: draws attention, positions, schedules, gradients, complexity and scaling."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer.cli.completion import complete_model
from transformer.cli.files import check_files
from transformer.cli.progress import spinner
from transformer.cli.verbosity import takes_verbosity
from transformer.errors import ConfigError

EPILOG = "Example: transformer plot attention runs/first 'A man sleeps.' --output attention.svg"
Kind = Literal["attention", "positions", "schedule", "gradients", "complexity", "scaling"]


@takes_verbosity
def plot(
    kind: Annotated[Kind, typer.Argument(help="what to draw")],
    model: Annotated[
        Path | None,
        typer.Argument(
            help="model (attention, gradients), or file of measurements (scaling, complexity)",
            autocompletion=complete_model,
        ),
    ] = None,
    text: Annotated[str | None, typer.Argument(help="attention, gradients: text to compute")] = None,
    output_path: Annotated[Path, typer.Option("--output", help="file to write: .svg, .pdf or .png")] = Path("plot.svg"),
    target: Annotated[
        str | None, typer.Option(help="attention, gradients: translation of the text; the model's own if not given")
    ] = None,
    block: Annotated[
        Literal["encoder", "decoder", "cross"], typer.Option(help="attention: which one to draw")
    ] = "cross",
    layer: Annotated[int | None, typer.Option(help="attention: layer, counted from 1; all if not given", min=1)] = None,
    d_model: Annotated[int, typer.Option(help="positions, schedule: width of the model", min=2, max=16_384)] = 512,
    length: Annotated[int, typer.Option(help="positions: number of positions", min=1, max=10_000)] = 64,
    schedule: Annotated[
        Literal["paper", "inverse_sqrt", "cosine", "constant"], typer.Option(help="schedule: which one to draw")
    ] = "paper",
    warmup_steps: Annotated[int, typer.Option(help="schedule: warm-up steps", min=1)] = 4000,
    steps: Annotated[int, typer.Option(help="schedule: number of steps", min=1)] = 100_000,
) -> None:
    """Draw attention, positional encodings, learning rates, gradients, complexity or scaling as a picture.

    `gradients` without a model compares untrained ones of 6 and of 12 layers, with pre-norm and with post-norm.
    `complexity` measures self-attention, recurrence and convolution on this machine, beside Table 1 of the paper, or
    draws what `benchmarks/training/complexity.py` has measured. `scaling` draws what `benchmarks/training/scaling.py`
    has measured.
    """
    needs_text = kind == "attention" or (kind == "gradients" and model is not None)
    if needs_text and (model is None or text is None):
        raise ConfigError(f"{kind} needs a model and a text; e.g. transformer plot {kind} runs/first 'A man sleeps.'")
    if kind == "scaling" and model is None:
        raise ConfigError("scaling needs a file of results; e.g. transformer plot scaling scaling.json")
    check_files([model] if kind in ("scaling", "complexity") else [], [output_path])
    from transformer import plot as figures  # loads torch

    with spinner(f"drawing {kind}"):
        if kind == "positions":
            figure = figures.positions(d_model, length)
        elif kind == "schedule":
            figure = figures.schedule(schedule, d_model=d_model, warmup_steps=warmup_steps, steps=steps)
        elif kind == "complexity":
            costs = figures.measure_complexity() if model is None else figures.read_complexity(model)
            figure = figures.complexity(costs)
        elif kind == "scaling":
            figure = figures.scaling(model or "")
        elif kind == "attention":
            figure = figures.attention(model or "", text or "", target=target, kind=block, layer=layer)
        elif model is None:
            figure = figures.untrained_gradients()
        else:
            figure = figures.gradients(model, text or "", target=target)
        figures.save(figure, output_path)
    typer.echo(f"wrote {output_path}")
