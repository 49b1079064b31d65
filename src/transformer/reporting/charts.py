"""Line charts, bar charts and heat maps as SVG, coloured by the style sheet of the page."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transformer.reporting.html import Markup, element, join

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 240, 58, 14, 12, 34
MAX_POINTS, MAX_COLUMNS = 400, 40
FAINTEST, DARKEST = -5.0, -1.0
"""Ends of the heat map's colour scale, as powers of ten."""
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A named curve.

    Attributes:
        name: Name in the legend.
        points: Pairs (x, y) in ascending order of x.
        marked: Whether every point has a dot with its value as a tooltip.
    """

    name: str
    points: list[Point]
    marked: bool = False


def line_chart(title: str, series: Sequence[Series]) -> Markup | None:
    """Draws curves over the steps of a run; returns None if all series are empty."""
    drawn = [(index, curve) for index, curve in enumerate(series) if curve.points]
    if not drawn:
        return None
    xs = [x for _, curve in drawn for x, _ in curve.points]
    ys = [y for _, curve in drawn for _, y in curve.points]
    x_ticks, y_ticks = ticks(min(0.0, *xs), max(xs)), ticks(min(ys), max(ys))
    x_scale = _scale(x_ticks[0], max(x_ticks[-1], *xs), LEFT, WIDTH - RIGHT)
    y_scale = _scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    legend = [element("span", curve.name, attributes={"class": f"key k{index}"}) for index, curve in drawn]
    caption = element("figcaption", element("b", title), *(legend if len(drawn) > 1 else ()))
    picture = _svg(
        HEIGHT,
        title,
        *_grid(x_ticks, y_ticks, x_scale, y_scale),
        *(_curve(i, curve, x_scale, y_scale) for i, curve in drawn),
    )
    return element("figure", caption, picture)


def heat_map(title: str, columns: Sequence[tuple[int, Mapping[str, float]]]) -> Markup | None:
    """Draws one row per block and one column for each of up to 40 steps; larger values are darker, on a log scale."""
    if not columns:
        return None
    chosen = (
        [columns[i * len(columns) // MAX_COLUMNS] for i in range(MAX_COLUMNS)]
        if len(columns) > MAX_COLUMNS
        else columns
    )
    names = list(chosen[0][1])
    left, row, height = 190, 18, 18 * len(names) + 22
    width = (WIDTH - RIGHT - left) / len(chosen)
    cells = [
        _cell(left + c * width, r * row, width, f"{name}, step {step:,}: {values[name]:.2g}", values[name])
        for c, (step, values) in enumerate(chosen)
        for r, name in enumerate(names)
        if name in values
    ]
    labels = [_text(left - 8, r * row + 13, name, "end") for r, name in enumerate(names)]
    ends = [
        _text(left, height - 5, f"step {chosen[0][0]:,}", "start"),
        _text(WIDTH - RIGHT, height - 5, f"{chosen[-1][0]:,}", "end"),
    ]
    return element("figure", element("figcaption", element("b", title)), _svg(height, title, *labels, *cells, *ends))


def bars(title: str, counts: Mapping[str, int]) -> Markup:
    """Draws horizontal bars with their counts."""
    left, row, max_count = 190, 22, max([*counts.values(), 1])
    parts: list[Markup] = []
    for index, (name, count) in enumerate(counts.items()):
        size = (WIDTH - RIGHT - left - 90) * count / max_count
        rectangle = {
            "class": "bar",
            "x": left,
            "y": index * row + 3,
            "width": f"{size:.1f}",
            "height": row - 6,
            "rx": 2,
        }
        parts += [
            _text(left - 8, index * row + 15, name, "end"),
            element("rect", attributes=rectangle),
            _text(left + size + 6, index * row + 15, f"{count:,}", "start"),
        ]
    return element("figure", element("figcaption", element("b", title)), _svg(row * len(counts) + 4, title, *parts))


def ticks(low: float, high: float) -> list[float]:
    """Returns two to seven round numbers whose range includes `low` and `high`."""
    span = (high - low) or abs(high) or 1.0
    size = 10.0 ** math.floor(math.log10(span / 4))
    step = size * next(factor for factor in (1, 2, 5, 10) if span / (size * factor) <= 5)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(index * step, 12) for index in range(first, max(last, first + 1) + 1)]


def thin(points: list[Point]) -> list[Point]:
    """Reduces a curve to at most 400 points, each the mean of a group of neighbouring points."""
    size = math.ceil(len(points) / MAX_POINTS)
    groups = [points[start : start + size] for start in range(0, len(points), size or 1)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def _curve(index: int, series: Series, x_scale: Callable[[float], float], y_scale: Callable[[float], float]) -> Markup:
    coordinates = " ".join(f"{x_scale(x):.1f},{y_scale(y):.1f}" for x, y in thin(series.points))
    dots = [
        element(
            "circle",
            element("title", f"{series.name}, step {x:,.0f}: {y:.4g}"),
            attributes={"class": f"d{index}", "cx": f"{x_scale(x):.1f}", "cy": f"{y_scale(y):.1f}", "r": 3},
        )
        for x, y in (series.points if series.marked else ())
    ]
    return join(element("polyline", attributes={"class": f"l{index}", "points": coordinates}), *dots)


def _grid(
    x_ticks: list[float], y_ticks: list[float], x_scale: Callable[[float], float], y_scale: Callable[[float], float]
) -> list[Markup]:
    parts: list[Markup] = []
    for y in y_ticks:
        line = {"class": "grid", "x1": LEFT, "x2": WIDTH - RIGHT, "y1": f"{y_scale(y):.1f}", "y2": f"{y_scale(y):.1f}"}
        parts += [element("line", attributes=line), _text(LEFT - 8, y_scale(y) + 4, _tick_label(y), "end")]
    parts += [_text(x_scale(x), HEIGHT - BOTTOM + 18, _tick_label(x), "middle") for x in x_ticks if x_scale(x) <= WIDTH]
    return parts


def _cell(x: float, y: float, width: float, title: str, value: float) -> Markup:
    power = math.log10(value) if value > 0 else FAINTEST
    strength = min(1.0, max(0.04, (power - FAINTEST) / (DARKEST - FAINTEST)))
    rectangle = {"class": "cell", "x": f"{x:.1f}", "y": f"{y:.0f}", "width": f"{width:.1f}", "height": 17}
    return element("rect", element("title", title), attributes=rectangle | {"fill-opacity": f"{strength:.2f}"})


def _svg(height: int, title: str, *parts: Markup) -> Markup:
    return element("svg", *parts, attributes={"viewBox": f"0 0 {WIDTH} {height}", "role": "img", "aria-label": title})


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return element("text", text, attributes={"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor})


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (end - start) * (value - low) / ((high - low) or 1.0)


def _tick_label(value: float) -> str:
    """Formats the label of a tick, such as 12k, 0.002 or 3e-05."""
    if abs(value) >= 10_000:
        return f"{value / 1000:,.0f}k"
    return f"{value:g}"
