"""Plots of what `benchmarks/training/residuals.py` measured."""

import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from transformer.reporting.figures import subplots
from transformer.style import LIGHT, SERIES

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "epyc-zen3-2-cores" / "residuals.json"
FORMATS = {
    "pre-norm": "s--", "post-norm": "o-", "no residual connections": "^-", "no residual connections, no norms": "v-",
}  # fmt: skip
COLOURS = dict(zip(FORMATS, SERIES, strict=False))
DEPTH = "12"


def facts(part: str) -> dict[str, Any]:
    """Returns a part of the committed results."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))[part]


def gradients() -> Figure:
    """Draws the gradient at the output of each layer, and what differs in it from position to position."""
    figure, panels = subplots(4.8, 6.4, 2, 1, sharex=True)
    names = ("gradient", "gradient that differs between positions")
    for panel, name in zip(panels, names, strict=True):
        for kind, depths in facts("untrained")["values"].items():
            values = depths[DEPTH][name]
            panel.semilogy(range(len(values)), values, FORMATS[kind], color=COLOURS[kind], ms=4, label=kind)
        panel.set_title(name, fontsize=11)
        panel.set_ylabel("norm")
        panel.grid(color=LIGHT["line"])
    panels[1].set(xlabel="output of layer (0: input)", xticks=range(0, int(DEPTH) + 1, 2))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", fontsize=9)
    return figure


def training() -> Figure:
    """Draws the loss of stacks with and without residual connections."""
    measured = facts("training")
    figure, axes = subplots(4.8, 4.0)
    for kind, runs in measured["losses"].items():
        for place, losses in enumerate(runs):
            steps = [measured["every"] * (i + 1) for i in range(len(losses))]
            label = None if place else kind
            axes.plot(steps, losses, FORMATS[kind], color=COLOURS[kind], ms=3, label=label)
    axes.set(xlabel="step", ylabel="loss", ylim=(0, None))
    axes.grid(color=LIGHT["line"])
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", fontsize=9)
    return figure


PLOTS = {"residual-gradients": gradients, "residual-training": training}
