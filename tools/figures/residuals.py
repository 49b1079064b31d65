"""Plots of what `benchmarks/training/residuals.py` measured.

Usage: python tools/figures/residuals.py
"""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from figures.plots import figure, save

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "epyc-zen3-2-cores" / "residuals.json"
STYLES = {
    "pre-norm": "C0s--", "post-norm": "C1o-", "no residual connections": "C2^-",
    "no residual connections, no norms": "C3v-",
}  # fmt: skip
DEPTH = "12"


def facts(part: str) -> dict[str, Any]:
    """Returns a part of the committed results."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))[part]


def gradients() -> Figure:
    """Draws the gradient at the output of each layer, and what differs in it from position to position."""
    plot = figure(height=6.4)
    panels = plot.subplots(2, 1, sharex=True)
    names = ("gradient", "gradient that differs between positions")
    for panel, name in zip(panels, names, strict=True):
        for kind, depths in facts("untrained")["values"].items():
            values = depths[DEPTH][name]
            panel.semilogy(range(len(values)), values, STYLES[kind], ms=4, label=kind)
        panel.set_title(name, fontsize=11)
        panel.set_ylabel("norm")
        panel.grid(alpha=0.3)
    panels[1].set(xlabel="output of layer (0: input)", xticks=range(0, int(DEPTH) + 1, 2))
    plot.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", fontsize=9)
    return plot


def training() -> Figure:
    """Draws the loss of stacks with and without residual connections."""
    measured = facts("training")
    plot = figure(height=4.0)
    axes = plot.subplots()
    for kind, runs in measured["losses"].items():
        for place, losses in enumerate(runs):
            steps = [measured["every"] * (i + 1) for i in range(len(losses))]
            axes.plot(steps, losses, STYLES[kind], ms=3, label=None if place else kind)
    axes.set(xlabel="step", ylabel="loss", ylim=(0, None))
    axes.grid(alpha=0.3)
    plot.legend(*axes.get_legend_handles_labels(), loc="outside lower center", fontsize=9)
    return plot


PLOTS = {"residual-gradients": gradients, "residual-training": training}

if __name__ == "__main__":
    for name, draw in PLOTS.items():
        save(draw(), name)
