"""Plots of the sinusoidal positional encoding."""

from matplotlib.figure import Figure

from transformer.blocks import sinusoid
from transformer.reporting.figures import colour_map, subplots
from transformer.style import LIGHT


def heat_map() -> Figure:
    """Draws the encoding of 64 positions in 128 dimensions."""
    figure, axes = subplots(4.8, 3.2)
    colours, table = colour_map("signed"), sinusoid(64, 128).numpy()
    shown = axes.imshow(table, cmap=colours, vmin=-1, vmax=1, aspect="auto", interpolation="none")
    figure.colorbar(shown, ax=axes)
    axes.set(xlabel="dimension", ylabel="position")
    return figure


def dot_products() -> Figure:
    """Draws the dot product of position 60 with the positions around it."""
    table = sinusoid(121, 128)
    figure, axes = subplots(4.8, 2.8)
    axes.plot(range(-60, 61), (table @ table[60]).numpy())
    axes.set(xlabel="distance k", ylabel="PE(pos) · PE(pos + k)", ylim=(0, None))
    axes.grid(color=LIGHT["line"])
    return figure


PLOTS = {"positions-heat-map": heat_map, "positions-dot-products": dot_products}
