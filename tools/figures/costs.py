"""Plots of the measured costs of self-attention, recurrence and convolution."""

import math
from pathlib import Path

from figures.svg import Drawing, Point
from transformer.inspection.complexity import TABLE, read_costs

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "epyc-zen3-2-cores" / "complexity.json"
WIDTH = 256
STYLES = (("series-1", ""), ("series-2", "6 3"), ("series-3", "2 3"))
NAMES = ("self-attention", "LSTM", "convolution")
PANELS = (
    ("seconds", "time", 1e-4, 1e-1, {1e-4: "0.1 ms", 1e-3: "1 ms", 1e-2: "10 ms", 1e-1: "100 ms"}),
    ("memory", "memory", 1e4, 1e8, {1e4: "10 kB", 1e6: "1 MB", 1e8: "100 MB"}),
    ("sequential", "sequential operations", 1, 1e4, {1: "1", 1e2: "100", 1e4: "10,000"}),
    ("path", "path length", 1, 1e4, {1: "1", 1e2: "100", 1e4: "10,000"}),
)


def costs() -> Drawing:
    """Draws time, memory, sequential operations and path length over the length of the sequence."""
    measured = [cost for cost in read_costs(RESULTS) if cost.d == WIDTH]
    lengths = sorted({cost.n for cost in measured})
    drawing = Drawing(350, 366)
    for number, (quantity, title, lowest, highest, ticks) in enumerate(PANELS):
        left, top = 52 + 176 * (number % 2), 24 + 166 * (number // 2)
        width, height = 104, 104

        def place(n: int, value: float, box: tuple[float, ...] = (left, top, width, height, lowest, highest)) -> Point:
            left, top, width, height, lowest, highest = box
            x = left + width * math.log(n / lengths[0]) / math.log(lengths[-1] / lengths[0])
            y = top + height * (1 - math.log(value / lowest) / math.log(highest / lowest))
            return x, y

        drawing.label(left + width / 2, top - 13, title, size=11, bold=True)
        for value, name in ticks.items():
            y = place(lengths[0], value)[1]
            drawing.grid_line(left, left + width, y)
            drawing.label(left - 4, y, name, anchor="end", size=10)
        for n in lengths[::2]:
            drawing.label(place(n, lowest)[0], top + height + 12, f"{n:,}", size=10)
        drawing.label(left + width / 2, top + height + 27, "length n", size=10)
        for layer, (colour, dashes) in zip(TABLE, STYLES, strict=True):
            points = [place(cost.n, getattr(cost, quantity)) for cost in measured if cost.layer == layer]
            drawing.curve(points, colour, dashes)
    for row, (name, (colour, dashes)) in enumerate(zip(NAMES, STYLES, strict=True)):
        x, y = (10, 126, 212)[row], 354
        drawing.curve([(x, y), (x + 22, y)], colour, dashes)
        drawing.label(x + 27, y, name, anchor="start", size=10)
    return drawing


DRAWINGS = {"costs": costs}
