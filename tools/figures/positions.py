"""Plots of the sinusoidal positional encoding, and a drawing of rotary positions."""

import math

from matplotlib.figure import Figure

from figures.svg import Drawing
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


def hand(drawing: Drawing, x: float, y: float, radius: float, angle: float, colour: str) -> None:
    """Draws a vector from the centre of a circle, at an angle in radians from the right, against the clock."""
    tip = (x + radius * math.cos(angle), y - radius * math.sin(angle))
    drawing.curve([(x, y), tip], colour)
    drawing.dot(*tip, 3, colour)


def rotary_angles() -> Drawing:
    """Draws two pairs of features over the positions, and the score of a query and a key that are rotated."""
    drawing = Drawing(350, 412)
    radius = 26
    drawing.label(4, 10, "a vector (1, 0, 1, 0) at the positions 0 to 4", anchor="start", bold=True)
    for row, (name, frequency) in enumerate((("pair 1", 1.0), ("pair 2", 0.1))):
        y = 58 + 74 * row
        drawing.label(4, y - 7, name, anchor="start", size=11)
        drawing.label(4, y + 8, f"{frequency:g} rad", anchor="start", size=11)
        for position in range(5):
            x = 74 + 61 * position
            drawing.circle(x, y, radius)
            hand(drawing, x, y, radius, frequency * position, "series-1")
    for position in range(5):
        drawing.label(74 + 61 * position, 172, f"{position}", size=11)
    drawing.line((4, 190), (346, 190), dashed=True)
    drawing.label(4, 206, "pair 1 of a query (1, 0) and a key (0, 1)", anchor="start", bold=True)
    for place, (query, key) in enumerate(((2, 0), (4, 2), (0, 2), (2, 4))):
        x, y = 88 + 170 * (place % 2), 250 + 92 * (place // 2)
        drawing.circle(x - 42, y, radius)
        hand(drawing, x - 42, y, radius, query, "series-1")
        hand(drawing, x - 42, y, radius, math.pi / 2 + key, "series-2")
        score = math.cos(query) * math.cos(math.pi / 2 + key) + math.sin(query) * math.sin(math.pi / 2 + key)
        for line, text in enumerate((f"query at {query}", f"key at {key}", f"q · k = {score:.2f}".replace("-", "−"))):
            drawing.label(x - 8, y - 15 + 15 * line, text, anchor="start", size=11, bold=line == 2)
    for x, name, colour in ((60, "query", "series-1"), (200, "key", "series-2")):
        drawing.curve([(x, 400), (x + 24, 400)], colour)
        drawing.dot(x + 24, 400, 3, colour)
        drawing.label(x + 32, 400, name, anchor="start", size=11)
    return drawing


DRAWINGS = {"rotary-angles": rotary_angles}
PLOTS = {"positions-heat-map": heat_map, "positions-dot-products": dot_products}
