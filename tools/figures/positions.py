"""Plots of the sinusoidal positional encoding.

Usage: python tools/figures/positions.py
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from figures.plots import figure, save
from transformer.blocks import sinusoid


def heat_map() -> Figure:
    """Draws the encoding of 64 positions in 128 dimensions."""
    plot = figure(height=3.2)
    axes = plot.subplots()
    shown = axes.imshow(sinusoid(64, 128).numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="none")
    plot.colorbar(shown, ax=axes)
    axes.set(xlabel="dimension", ylabel="position")
    return plot


def dot_products() -> Figure:
    """Draws the dot product of position 60 with the positions around it."""
    table = sinusoid(121, 128)
    plot = figure(height=2.8)
    axes = plot.subplots()
    axes.plot(range(-60, 61), (table @ table[60]).numpy())
    axes.set(xlabel="distance k", ylabel="PE(pos) · PE(pos + k)", ylim=(0, None))
    axes.grid(alpha=0.3)
    return plot


PLOTS = {"positions-heat-map": heat_map, "positions-dot-products": dot_products}

if __name__ == "__main__":
    for name, draw in PLOTS.items():
        save(draw(), name)
