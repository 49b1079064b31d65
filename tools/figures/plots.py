"""Plots for the documentation: of a size that can be read on a phone, and the same each time they are made."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from figures.svg import FIGURES

matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "transformer", "font.size": 11}


def figure(width: float = 4.8, height: float = 3.4) -> Figure:
    """Returns an empty figure of a size in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def save(plot: Figure, name: str, folder: Path = FIGURES) -> None:
    """Writes a figure without the date, by default to the figures of the documentation."""
    plot.savefig(folder / f"{name}.svg", metadata={"Date": None})
