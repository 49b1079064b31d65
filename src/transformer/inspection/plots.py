"""Figures of attention, positions, schedules, gradients, complexity and scaling, as matplotlib figures."""

import json
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from transformer.blocks.positional import sinusoid
from transformer.bundle import Bundle
from transformer.config import JsonObject
from transformer.errors import ConfigError, DataError, note
from transformer.inspection.complexity import TABLE, Cost, exponents
from transformer.inspection.gradient_norms import compared_norms, norms_by_depth
from transformer.inspection.passes import record_pass
from transformer.inspection.steps import make_steps
from transformer.pipelines.auto import read_model
from transformer.reporting.figures import CROSS_ATTENTION_SIDES, colour_map, draw_attention, row_labels, subplots
from transformer.style import LIGHT, SERIES
from transformer.training.optim.schedule import make_schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_LABELS: Final = 40
"""Most tokens that are written along an axis."""
ATTENTION_BLOCKS: Final = {
    "encoder": ("Multi-head self-attention", "token", "token (attended to)"),
    "decoder": ("Masked multi-head self-attention", "position", "token (attended to)"),
    "cross": ("Multi-head cross-attention", *CROSS_ATTENTION_SIDES),
}
"""Title of the block of each kind of attention, and what its rows and columns are."""


def attention(
    model: Path | str, text: str, *, target: str | None = None, kind: str = "cross", layer: int | None = None
) -> "Figure":
    """Draws the attention weights of every head, one row of pictures for each layer.

    A row of a decoder says which token its position reads, and which one it writes.

    Args:
        model: Folder of the model.
        text: Text that the model reads.
        target: Its translation; default: the model's own.
        kind: "encoder", "decoder" or "cross".
        layer: Layer to draw, counted from 1; default: all.

    Raises:
        ConfigError: The model has no such attention or layer.
    """
    if kind not in ATTENTION_BLOCKS:
        raise ConfigError(f"kind={kind!r} is unknown; choose encoder, decoder or cross")
    title, row_side, column_side = ATTENTION_BLOCKS[kind]
    recorded = record_pass(_read(model), text, target)
    steps = [step for step in make_steps(recorded) if step.operation.kind == "softmax" and step.block == title]
    if layer is not None:
        steps = steps[layer - 1 : layer] if layer > 0 else []
    if not steps:
        raise ConfigError(f"this {recorded.bundle.family} model has no {kind} attention in that layer; choose another")
    heads = steps[0].output.tensor.size(1)
    figure, grid = subplots(2.5 + 2.2 * heads, 1.0 + 2.2 * len(steps), len(steps), heads, squeeze=False)
    for step, panels in zip(steps, grid, strict=True):
        rows, columns = (recorded.example.tokens.get(letter, []) for letter in step.output.axes[-2:])
        if kind != "encoder" and len(rows) == len(recorded.label_names):
            rows = row_labels(rows, recorded.label_names)
        rows, columns = (tokens if len(tokens) <= MAX_LABELS else [] for tokens in (rows, columns))
        for head, axes in enumerate(panels):
            draw_attention(
                axes, step.output.tensor[0, head], rows if head == 0 else [], columns, largest=1.0, font_size=6
            )
            axes.tick_params(labelleft=head == 0)
            axes.set_title(f"{step.section.split()[-2]} {step.section.split()[-1]}, head {head + 1}", fontsize=8)
    figure.supylabel(row_side, fontsize=8)
    figure.supxlabel(column_side, fontsize=8)
    figure.suptitle(title)
    return figure


def positions(d_model: int = 128, length: int = 64, dimensions: Sequence[int] | None = None) -> "Figure":
    """Draws the sinusoidal positional encoding: as a heat map, as curves, and as dot products over distance.

    Args:
        d_model: Width of the model, even.
        length: Number of positions.
        dimensions: Dimensions to draw as curves; default: four of the first half.

    Source: Vaswani et al. 2017, Sec. 3.5.
    """
    if length < 1:
        raise ConfigError(f"length={length} is below 1; choose a positive number")
    table = sinusoid(length, d_model)
    figure, (heat, curves, products) = subplots(12.0, 3.6, 1, 3)
    shown = heat.imshow(table.numpy(), cmap=colour_map("signed"), vmin=-1, vmax=1, aspect="auto")
    figure.colorbar(shown, ax=heat)
    heat.set(xlabel="dimension", ylabel="position", title="PE(pos, dimension)")
    if dimensions is None:
        dimensions = sorted({d_model * eighth // 16 * 2 for eighth in (1, 2, 3, 4)})
    if any(not 0 <= dimension < d_model for dimension in dimensions):
        raise ConfigError(f"dimensions={list(dimensions)} are not in 0 to {d_model - 1}; choose others")
    for dimension in dimensions:
        curves.plot(table[:, dimension].numpy(), label=f"dimension {dimension}")
    curves.set(xlabel="position", title="curves of some dimensions")
    curves.legend(fontsize=7)
    products.plot((table @ table[0]).numpy())
    products.set(xlabel="distance k", title="PE(pos) · PE(pos + k)")
    return figure


def schedule(
    name: str = "paper",
    *,
    d_model: int = 512,
    warmup_steps: int = 4000,
    steps: int = 100_000,
    peak: float | None = None,
) -> "Figure":
    """Draws the learning rate over the steps of a schedule.

    Args:
        name: Name of the schedule, as in a recipe.
        d_model: Width of the model.
        warmup_steps: Number of warm-up steps.
        steps: Number of steps.
        peak: Peak learning rate; default: that of the paper's schedule.

    Source: Vaswani et al. 2017, Sec. 5.3, Eq. 3.
    """
    if steps < 1 or warmup_steps < 1:
        raise ConfigError(f"steps={steps} and warmup_steps={warmup_steps} must be positive; choose others")
    rate = make_schedule(name, d_model=d_model, peak=peak, warmup_steps=warmup_steps, decay_steps=steps)
    shown = torch.linspace(1, steps, min(steps, 1000)).long().tolist()
    figure, axes = subplots(7.0, 4.0)
    axes.plot(shown, [rate(step) for step in shown])
    axes.axvline(warmup_steps, color=LIGHT["soft"], linestyle=":", label=f"end of the warm-up, step {warmup_steps:,}")
    axes.set(xlabel="step", ylabel="learning rate", title=f"schedule {name!r}")
    axes.legend()
    return figure


def gradients(model: Path | str, text: str, *, target: str | None = None) -> "Figure":
    """Draws the norm of the gradient from layer to layer, of a model and of untrained ones of the same size.

    Args:
        model: Folder of the model.
        text: Text that the model reads.
        target: Its translation; default: the model's own.
    """
    series = compared_norms(record_pass(_read(model), text, target))
    figure, axes = subplots(9.0, 4.5)
    labels = max(([value["label"] for value in one["values"]] for one in series), key=len)
    for colour, one in zip(cycle(SERIES), series, strict=False):
        norms = {value["label"]: value["norm"] for value in one["values"]}
        stacks = (
            [
                place
                for place, label in enumerate(labels)
                if label in norms and label.startswith("Encoder") == is_encoder
            ]
            for is_encoder in (True, False)
        )
        name = one["name"]
        for places in filter(None, stacks):  # no gradient goes from the decoder's input to the encoder's output
            axes.semilogy(places, [norms[labels[place]] for place in places], "o-", color=colour, ms=3, label=name)
            name = None
    axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right")
    axes.set(ylabel="norm of the gradient", title="gradient of the loss with respect to the output of each part")
    axes.legend(fontsize=7)
    return figure


def untrained_gradients(depths: Sequence[int] = (6, 12)) -> "Figure":
    """Draws the gradient norms of the decoder layers of untrained models with pre-norm and post-norm.

    Args:
        depths: Numbers of layers.

    Raises:
        ConfigError: A number of layers is not in 2 to 48.

    Source: Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture", Sec. 3.3 and Fig. 3.
    """
    if not all(2 <= depth <= 48 for depth in depths):
        raise ConfigError(f"depths={list(depths)} are not in 2 to 48; choose others")
    from matplotlib.ticker import LogLocator

    figure, axes = subplots(4.8, 4.2)
    for place, one in enumerate(norms_by_depth(depths)):
        is_post = place >= len(depths)
        layers = range(1, len(one["values"]) + 1)
        axes.semilogy(layers, one["values"], "o-" if is_post else "s--", ms=4, label=one["name"])
    axes.set(xlabel="decoder layer", ylabel="norm of the gradient of $W_2$", title="gradients of untrained models")
    axes.set_xticks(range(0, max(depths) + 1, max(1, max(depths) // 6)))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.grid(color=LIGHT["line"])
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return figure


def complexity(costs: Sequence[Cost]) -> "Figure":
    """Draws measured costs over the length, with fitted exponents beside the paper's table.

    Args:
        costs: What `measure` or `read_costs` of `transformer.inspection.complexity` returned.

    Source: Vaswani et al. 2017, Table 1.
    """
    figure, grid = subplots(7.2, 8.8, 2, 2)
    panels = grid.flatten()
    widths, lengths = sorted({cost.d for cost in costs}), sorted({cost.n for cost in costs})
    for colour, layer in zip(SERIES, TABLE, strict=False):
        for width in widths:
            rows = [cost for cost in costs if cost.layer == layer and cost.d == width]
            style = {"color": colour, "alpha": 0.35 + 0.65 * (widths.index(width) + 1) / len(widths)}
            shown = ("seconds", "memory") if width != widths[-1] else ("seconds", "memory", "sequential", "path")
            for panel, quantity in zip(panels, shown, strict=False):
                values = [getattr(row, quantity) for row in rows]
                panel.loglog(lengths, values, "o-", ms=3, **style)
        (time, sequential, path), last = TABLE[layer], {"color": colour, "marker": "o", "ms": 3}
        a, b = exponents(costs, layer)
        c, d = exponents(costs, layer, "memory")
        chain, _ = exponents(costs, layer, "sequential")
        fits = (
            f"{layer} {time}:\nn^{a:.2f} d^{b:.2f}",
            f"n^{c:.2f} d^{d:.2f}",
            f"{sequential}: n^{abs(chain):.2f}",
            path,
        )
        for panel, fit in zip(panels, fits, strict=True):
            panel.plot([], [], label=fit, **last)
    titles = (
        ("seconds", f"time, d = {', '.join(map(str, widths))}"), ("bytes", "memory for the backward pass"),
        ("operations", "sequential operations"), ("layers or steps", "maximum path length"),
    )  # fmt: skip
    for panel, (unit, title) in zip(panels, titles, strict=True):
        panel.set(xlabel="length n", ylabel=unit, title=title)
        panel.set_xticks(lengths, [str(n) for n in lengths])
        panel.minorticks_off()
        panel.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return figure


def scaling(results: Path | str) -> "Figure":
    """Draws the validation loss over the size of the model and of the corpus.

    Args:
        results: JSON file with a list `runs` of objects with `parameters`, `pairs` and `loss`, and the `unit` of the
            loss if it is not nats a token.

    Raises:
        DataError: The file is not such a file.
    """
    try:
        facts: JsonObject = json.loads(Path(results).read_text(encoding="utf-8"))
        runs: list[JsonObject] = facts["runs"]
        points = [(int(run["parameters"]), int(run["pairs"]), float(run["loss"])) for run in runs]
        if not points or min(min(point[:2]) for point in points) < 1:
            raise ValueError("no runs, or sizes below 1")
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise DataError(f"{results} has no list of runs with parameters, pairs and loss; give another file") from error
    figure, panels = subplots(4.8, 8.4, 2, 1)
    for panel, key, other, name in ((panels[0], 0, 1, "parameters"), (panels[1], 1, 0, "sentence pairs")):
        for value in sorted({point[other] for point in points}):
            line = sorted((point[key], point[2]) for point in points if point[other] == value)
            unit = "pairs" if other else "parameters"
            panel.semilogx(*zip(*line, strict=True), "o-", ms=4, label=f"{value:,} {unit}")
        sizes = sorted({point[key] for point in points})
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
        panel.minorticks_off()
        panel.set(xlabel=name, ylabel=f"validation loss ({facts.get('unit', 'nats a token')})")
        panel.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return figure


def _read(model: Path | str) -> Bundle:
    """Reads a model in float32, with a note if it is stored in int8."""
    bundle = read_model(Path(model), None)
    if bundle.rounding_note:
        note(bundle.rounding_note)
    return bundle
