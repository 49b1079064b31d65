"""Plots for the documentation: of a size that can be read on a phone, and the same each time they are made."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from figures.svg import FIGURES
from transformer import plot

matplotlib.rcParams["font.size"] = 11


def save(figure: Figure, name: str, folder: Path = FIGURES) -> None:
    """Writes a figure, by default to the figures of the documentation."""
    plot.save(figure, folder / f"{name}.svg")
