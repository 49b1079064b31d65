"""A small language for block diagrams as SVG: boxes, arrows, labels and frames.

Lines and letters are drawn in `currentColor`, and the rest in the variables of `transformer.style`, so a drawing takes
the colours of the page around it, in light mode and in dark mode. A drawing is at most 350 units wide, as a page on a
phone is, and is shown larger where there is space.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final

from transformer.style import LIGHT

FIGURES: Final = Path(__file__).resolve().parents[2] / "docs" / "figures"
MAX_WIDTH: Final = 350
ZOOM: Final = 1.4
"""Factor by which a drawing is enlarged where the page is wide enough."""
TINTS: Final = {
    "attention": "attention", "feed-forward": "series-1", "norm": "series-3", "embedding": "series-4",
    "output": "series-5", "chosen": "series-1",
}  # fmt: skip
"""Colour of each kind of box; it is laid thinly over the background, so that text stays readable."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle by its centre and size, with the points where arrows begin and end."""

    x: float
    y: float
    width: float
    height: float

    @property
    def top(self) -> Point:
        """Middle of the upper edge."""
        return self.x, self.y - self.height / 2

    @property
    def bottom(self) -> Point:
        """Middle of the lower edge."""
        return self.x, self.y + self.height / 2

    @property
    def left(self) -> Point:
        """Middle of the left edge."""
        return self.x - self.width / 2, self.y

    @property
    def right(self) -> Point:
        """Middle of the right edge."""
        return self.x + self.width / 2, self.y


@dataclass
class Drawing:
    """An SVG drawing, to which shapes are added one after another.

    Attributes:
        width: Width in units.
        height: Height in units.
        top: Height of the empty strip at the top that is left out.
    """

    width: int
    height: int
    parts: list[str] = field(default_factory=list)
    top: int = 0

    def box(
        self,
        x: float,
        y: float,
        text: str,
        kind: str = "plain",
        *,
        width: float = 120,
        height: float = 0,
        size: int = 12,
    ) -> Box:
        """Draws a rectangle around one or more lines of text; x and y are its centre."""
        lines = text.split("\n")
        height = height or 10 + 15 * len(lines)
        fill, opacity = (paint(TINTS[kind]), 0.25) if kind in TINTS else ("currentColor", 0.06)
        self.parts.append(
            f'<rect x="{_n(x - width / 2)}" y="{_n(y - height / 2)}" width="{_n(width)}" height="{_n(height)}" rx="5" '
            f'fill="{fill}" fill-opacity="{opacity}" stroke="currentColor"/>'
        )
        for row, line in enumerate(lines):
            self.label(x, y + 15 * (row - (len(lines) - 1) / 2), line, size=size)
        return Box(x, y, width, height)

    def copies(self, box: Box, n: int) -> None:
        """Draws the edges of boxes behind a box."""
        x, y, right, bottom = box.left[0], box.top[1], box.right[0], box.bottom[1]
        for shift in range(4, 4 * n + 1, 4):
            self.line(
                (x + shift, y - shift + 4), (x + shift, y - shift), (right + shift, y - shift),
                (right + shift, bottom - shift), (right + shift - 4, bottom - shift),
            )  # fmt: skip

    def plus(self, x: float, y: float) -> Box:
        """Draws a circle with a plus sign: a sum."""
        self.parts.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="9" fill="none" stroke="currentColor"/>')
        self.line((x - 5, y), (x + 5, y))
        self.line((x, y - 5), (x, y + 5))
        return Box(x, y, 18, 18)

    def label(
        self, x: float, y: float, text: str, *, anchor: str = "middle", size: int = 12, bold: bool = False
    ) -> None:
        """Writes a line of text; y is its middle. An underscore makes the rest of a word a subscript."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{_n(x)}" y="{_n(y + size * 0.35)}" font-size="{size}" text-anchor="{anchor}"{weight}>'
            f"{_subscripts(text)}</text>"
        )

    def slanted(self, x: float, y: float, text: str, *, size: int = 12) -> None:
        """Writes a line of text that rises to the right from its start."""
        self.parts.append(
            f'<text transform="translate({_n(x)} {_n(y)}) rotate(-45)" font-size="{size}">{_subscripts(text)}</text>'
        )

    def line(self, *points: Point, dashed: bool = False) -> None:
        """Draws a line through points."""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="currentColor"{dashes}/>')

    def curve(self, points: Sequence[Point], colour: str, dashes: str = "") -> None:
        """Draws a curve of a chart in one of the colours of `transformer.style`."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        pattern = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{paint(colour)}" stroke-width="2"{pattern}/>')

    def grid_line(self, left: float, right: float, y: float) -> None:
        """Draws a horizontal line behind the curves of a chart."""
        self.parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{paint("line")}"/>')

    def arrow(self, *points: Point) -> None:
        """Draws a line through points that ends in an arrowhead."""
        self.line(*points)
        (x1, y1), (x, y) = points[-2:]
        dx, dy = (x > x1) - (x < x1), (y > y1) - (y < y1)
        corners = [
            (x, y),
            (x - 6 * dx + 3.5 * dy, y - 6 * dy + 3.5 * dx),
            (x - 6 * dx - 3.5 * dy, y - 6 * dy - 3.5 * dx),
        ]
        path = " ".join(f"{_n(a)},{_n(b)}" for a, b in corners)
        self.parts.append(f'<polygon points="{path}" fill="currentColor"/>')

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """Draws a dashed frame; x and y are its upper left corner."""
        self.parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="8" fill="none" '
            'stroke="currentColor" stroke-dasharray="5 4" stroke-opacity="0.7"/>'
        )

    def cells(self, x: float, y: float, rows: Sequence[Sequence[bool]], size: float = 20) -> None:
        """Draws a grid whose true cells are filled; x and y are its upper left corner."""
        for i, row in enumerate(rows):
            for j, filled in enumerate(row):
                fill = f'fill="{paint("attention")}" fill-opacity="0.7"' if filled else 'fill="none"'
                self.parts.append(
                    f'<rect x="{_n(x + j * size)}" y="{_n(y + i * size)}" width="{_n(size)}" height="{_n(size)}" '
                    f'{fill} stroke="currentColor" stroke-opacity="0.5"/>'
                )

    def table(
        self,
        x: float,
        y: float,
        rows: Sequence[Sequence[str]],
        kinds: Sequence[Sequence[str]],
        *,
        width: float = 24,
        height: float = 18,
        size: int = 11,
    ) -> None:
        """Draws a grid of texts, each in the colour of its kind; x and y are its upper left corner."""
        for i, (texts, row) in enumerate(zip(rows, kinds, strict=True)):
            for j, (text, kind) in enumerate(zip(texts, row, strict=True)):
                fill = f'fill="{paint(TINTS[kind])}" fill-opacity="0.25"' if kind in TINTS else 'fill="none"'
                self.parts.append(
                    f'<rect x="{_n(x + j * width)}" y="{_n(y + i * height)}" width="{_n(width)}" height="{_n(height)}" '
                    f'{fill} stroke="currentColor" stroke-opacity="0.5"/>'
                )
                if text:
                    self.label(x + (j + 0.5) * width, y + (i + 0.5) * height, text, size=size)

    def dot(self, x: float, y: float, radius: float, colour: str = "") -> None:
        """Draws a filled circle, by default in the colour of the lines."""
        self.parts.append(
            f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{paint(colour) if colour else "currentColor"}"/>'
        )

    def circle(self, x: float, y: float, radius: float) -> None:
        """Draws a thin circle."""
        self.parts.append(
            f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="none" '
            'stroke="currentColor" stroke-opacity="0.4"/>'
        )

    def crop(self, top: int) -> None:
        """Leaves out an empty strip at the top."""
        self.top = top

    def svg(self) -> str:
        """Returns the drawing as the text of an SVG file."""
        assert self.width <= MAX_WIDTH, f"a drawing of {self.width} units does not fit a phone"
        height = self.height - self.top
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {self.top} {self.width} {height}" '
            f'width="{_n(self.width * ZOOM)}" height="{_n(height * ZOOM)}" fill="currentColor" '
            'font-family="system-ui, sans-serif">'
        )
        return "\n".join([head, *self.parts, "</svg>", ""])


def paint(name: str) -> str:
    """Returns a colour of `transformer.style` as the page has it, or in the light theme where the page has none."""
    return f"var(--{name}, {LIGHT[name]})"


def _n(value: float) -> str:
    return f"{round(value, 1):g}"


def _subscripts(text: str) -> str:
    lowered = '<tspan font-size="75%" dy="3">\\1</tspan><tspan dy="-3">\u200b</tspan>'
    return re.sub(r"_(\w+)", lowered, escape(text))
