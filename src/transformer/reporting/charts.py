"""Line charts, bar charts and heat maps as SVG, coloured by the style sheet of the page."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

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
    drawn = [(index, curve) for index, curve in enumerate(series, start=1) if curve.points]
    if not drawn:
        return None
    xs = [x for _, curve in drawn for x, _ in curve.points]
    ys = [y for _, curve in drawn for _, y in curve.points]
    x_ticks, y_ticks = ticks(min(0.0, *xs), max(xs)), ticks(min(ys), max(ys))
    x_scale = _scale(x_ticks[0], max(x_ticks[-1], *xs), LEFT, WIDTH - RIGHT)
    y_scale = _scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    keys = [Markup('<span class="key series-{}">{}</span>').format(index, curve.name) for index, curve in drawn]
    curves = [_curve(index, curve, x_scale, y_scale) for index, curve in drawn]
    return _figure(title, HEIGHT, [*_grid(x_ticks, y_ticks, x_scale, y_scale), *curves], keys if len(keys) > 1 else [])


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
        if values.get(name) is not None
    ]
    labels = [_text(left - 8, r * row + 13, name, "end") for r, name in enumerate(names)]
    ends = [
        _text(left, height - 5, f"step {chosen[0][0]:,}", "start"),
        _text(WIDTH - RIGHT, height - 5, f"{chosen[-1][0]:,}", "end"),
    ]
    return _figure(title, height, [*labels, *cells, *ends])


def bars(title: str, counts: Mapping[str, int] | Mapping[str, float]) -> Markup:
    """Draws horizontal bars with their counts or values."""
    left, row, max_count = 190, 22, max([*counts.values(), 1])
    parts: list[Markup] = []
    for index, (name, count) in enumerate(counts.items()):
        width = (WIDTH - RIGHT - left - 90) * count / max_count
        rectangle = Markup('<rect class="bar" x="{}" y="{}" width="{:.1f}" height="{}" rx="2"/>')
        parts += [
            _text(left - 8, index * row + 15, name, "end"),
            rectangle.format(left, index * row + 3, width, row - 6),
            _text(
                left + width + 6, index * row + 15, f"{count:,}" if isinstance(count, int) else f"{count:,.1f}", "start"
            ),
        ]
    return _figure(title, row * len(counts) + 4, parts)


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
    line = Markup('<polyline class="series-{}" points="{}"/>').format(index, coordinates)
    dot = Markup(
        '<circle class="series-{}" cx="{:.1f}" cy="{:.1f}" r="3"><title>{}, step {:,.0f}: {:.4g}</title></circle>'
    )
    dots = [dot.format(index, x_scale(x), y_scale(y), series.name, x, y) for x, y in series.points if series.marked]
    return Markup().join([line, *dots])


def _grid(
    x_ticks: list[float], y_ticks: list[float], x_scale: Callable[[float], float], y_scale: Callable[[float], float]
) -> list[Markup]:
    line = Markup('<line class="grid" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>')
    parts: list[Markup] = []
    for y in y_ticks:
        parts += [
            line.format(LEFT, WIDTH - RIGHT, y=y_scale(y)),
            _text(LEFT - 8, y_scale(y) + 4, _tick_label(y), "end"),
        ]
    parts += [_text(x_scale(x), HEIGHT - BOTTOM + 18, _tick_label(x), "middle") for x in x_ticks if x_scale(x) <= WIDTH]
    return parts


def _cell(x: float, y: float, width: float, title: str, value: float) -> Markup:
    power = math.log10(value) if value > 0 else FAINTEST
    strength = min(1.0, max(0.04, (power - FAINTEST) / (DARKEST - FAINTEST)))
    return Markup(
        '<rect class="cell" x="{:.1f}" y="{:.0f}" width="{:.1f}" height="17" fill-opacity="{:.2f}">'
        "<title>{}</title></rect>"
    ).format(x, y, width, strength, title)


def _figure(title: str, height: int, parts: Sequence[Markup], keys: Sequence[Markup] = ()) -> Markup:
    return Markup(
        "<figure><figcaption><b>{title}</b>{keys}</figcaption>"
        '<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}">{parts}</svg></figure>'
    ).format(title=title, keys=Markup().join(keys), width=WIDTH, height=height, parts=Markup().join(parts))


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (end - start) * (value - low) / ((high - low) or 1.0)


def _tick_label(value: float) -> str:
    """Formats the label of a tick, such as 12k, 0.002 or 3e-05."""
    if abs(value) >= 10_000:
        return f"{value / 1000:,.0f}k"
    return f"{value:g}"
