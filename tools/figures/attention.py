"""Drawings of how attention is computed: split heads, shared keys and values, growing caches and tiles."""

import math
from itertools import chain

from figures.svg import Drawing

QUERY_HEADS = 8
SHARING = (("multi-head", 8), ("grouped-query", 2), ("multi-query", 1))
"""Kinds of attention with their heads of keys and values, for eight heads of queries."""
CACHE = {"layers": 32, "heads": 32, "width": 128, "bytes": 2}
"""Sizes of the language model whose cache is drawn."""
CACHED = (("32 heads (MHA)", 32), ("8 heads (GQA)", 8), ("1 head (MQA)", 1))
STYLES = (("series-1", ""), ("series-2", "6 3"), ("series-3", "2 3"))
SCORES = (1.0, 3.0, 2.0, 5.0)
VALUES = (10.0, 20.0, 30.0, 40.0)


def head_splitting() -> Drawing:
    """Draws how the features of three positions become two heads, and what a plain reshape would do."""
    tokens, h, d_k = 3, 2, 3
    numbers = [[str(10 * t + feature) for feature in range(h * d_k)] for t in range(tokens)]
    kinds = [["attention"] * d_k + ["feed-forward"] * d_k for _ in range(tokens)]
    drawing = Drawing(350, 412)
    drawing.label(175, 10, "x: (B, T, d_model) = (1, 3, 6)", bold=True)
    drawing.table(103, 22, numbers, kinds)
    for t in range(tokens):
        drawing.label(97, 31 + 18 * t, f"position {t + 1}", anchor="end", size=11)
    drawing.arrow((175, 78), (175, 100))
    drawing.label(183, 89, "view", anchor="start", size=11)
    drawing.label(175, 110, "(B, T, h, d_k) = (1, 3, 2, 3)", bold=True)
    flat, flat_kinds = [*chain(*numbers)], [*chain(*kinds)]
    for t in range(tokens):
        for head in range(h):
            part = slice(6 * t + 3 * head, 6 * t + 3 * head + 3)
            drawing.table(4 + 116 * t + 56 * head, 122, [flat[part]], [flat_kinds[part]], width=18, size=10)
        drawing.label(57 + 116 * t, 151, f"position {t + 1}", size=11)
    drawing.arrow((175, 160), (175, 182))
    drawing.label(183, 171, "transpose (1, 2)", anchor="start", size=11)
    drawing.label(175, 192, "(B, h, T, d_k) = (1, 2, 3, 3)", bold=True)
    for head in range(h):
        part = slice(d_k * head, d_k * (head + 1))
        x = 79 + 120 * head
        drawing.table(x, 204, [row[part] for row in numbers], [row[part] for row in kinds])
        drawing.label(x + 36, 269, f"head {head + 1}", size=11)
    for t in range(tokens):
        drawing.label(73, 213 + 18 * t, f"position {t + 1}", anchor="end", size=11)
    drawing.line((4, 287), (346, 287), dashed=True)
    drawing.label(175, 305, "x.reshape(1, 2, 3, 3): wrong", bold=True)
    for head in range(h):
        x = 79 + 120 * head
        part = slice(9 * head, 9 * head + 9)
        rows, colours = flat[part], flat_kinds[part]
        drawing.table(x, 318, [rows[i : i + 3] for i in (0, 3, 6)], [colours[i : i + 3] for i in (0, 3, 6)])
        drawing.label(x + 36, 383, f"“head {head + 1}”", size=11)
    drawing.label(175, 402, "Both mix features of two heads and of two positions.", size=11)
    return drawing


def shared_heads() -> Drawing:
    """Draws which heads of keys and values eight heads of queries read, in three kinds of attention."""
    drawing = Drawing(350, 324)
    step, left, size = 34, 56, 26
    for panel, (name, groups) in enumerate(SHARING):
        y = 14 + 110 * panel
        heads = f"{groups} head{'s' if groups > 1 else ''} of keys and values"
        drawing.label(4, y, f"{name}: {heads}", anchor="start", bold=True)
        drawing.label(4, y + 27, "queries", anchor="start", size=11)
        drawing.label(4, y + 76, "K and V", anchor="start", size=11)
        shared = QUERY_HEADS // groups
        for group in range(groups):
            x = left + step * (group * shared + (shared - 1) / 2) + size / 2
            source = drawing.box(x, y + 76, f"{group + 1}", "feed-forward", width=size, height=22, size=11)
            for head in range(group * shared, (group + 1) * shared):
                query = drawing.box(
                    left + step * head + size / 2, y + 27, f"{head + 1}", "attention", width=size, height=22, size=11
                )
                drawing.line(query.bottom, source.top)
    return drawing


def cache_growth() -> Drawing:
    """Draws the bytes of a key-value cache over the tokens of one text, by the number of heads of keys and values."""
    drawing = Drawing(350, 250)
    left, right, top, bottom, longest, highest = 62, 330, 22, 190, 8192, 4.0
    per_head = 2 * CACHE["layers"] * CACHE["width"] * CACHE["bytes"]
    drawing.label((left + right) / 2, 8, "cache of one text", size=11, bold=True)
    for tick in range(5):
        y = bottom - (bottom - top) * tick / 4
        drawing.grid_line(left, right, y)
        drawing.label(left - 6, y, f"{highest * tick / 4:g} GiB", anchor="end", size=11)
        tokens = longest * tick // 4
        x = left + (right - left) * tick / 4
        drawing.label(x, bottom + 14, f"{tokens:,}", size=11)
    drawing.label((left + right) / 2, bottom + 30, "tokens so far", size=11)
    for place, ((name, heads), (colour, dashes)) in enumerate(zip(CACHED, STYLES, strict=True)):
        gibibytes = per_head * heads * longest / 2**30
        drawing.curve([(left, bottom), (right, bottom - (bottom - top) * gibibytes / highest)], colour, dashes)
        x = (2, 124, 238)[place]
        drawing.curve([(x, 241), (x + 20, 241)], colour, dashes)
        drawing.label(x + 25, 241, name, anchor="start", size=10)
    return drawing


def tiles() -> Drawing:
    """Draws one row of scores that is read in two tiles, with the running maximum, sum and output."""
    drawing = Drawing(350, 292)
    drawing.label(88, 10, "plain: all scores at once", size=11, bold=True)
    drawing.label(262, 10, "tiled: two keys at a time", size=11, bold=True)
    for x, kinds in (
        (40, [["attention"] * 4] * 4),
        (
            214,
            [
                ["", "", "", ""],
                ["", "", "", ""],
                ["", "", "attention", "attention"],
                ["", "", "attention", "attention"],
            ],
        ),
    ):
        drawing.table(x, 22, [[""] * 4] * 4, kinds, height=16)
        drawing.label(x - 6, 54, "Q", anchor="end", size=11)
        drawing.label(x + 48, 96, "K and V", size=11)
    state = None
    for tile in range(2):
        part = slice(2 * tile, 2 * tile + 2)
        scores, values = SCORES[part], VALUES[part]
        left = 8 + 178 * tile
        largest = max(scores) if state is None else max(*scores, state[0])
        exponentials = [math.exp(score - largest) for score in scores]
        factor = 0.0 if state is None else math.exp(state[0] - largest)
        total = (0.0 if state is None else state[1] * factor) + sum(exponentials)
        weighted = sum(e * v for e, v in zip(exponentials, values, strict=True))
        output = (0.0 if state is None else state[2] * factor) + weighted
        state = (largest, total, output)
        drawing.label(left + 78, 122, f"tile {tile + 1}", size=11, bold=True)
        for row, (name, numbers) in enumerate((("scores", scores), ("values", values))):
            drawing.label(left + 48, 145 + 18 * row, name, anchor="end", size=11)
            drawing.table(
                left + 54,
                136 + 18 * row,
                [[f"{number:g}" for number in numbers]],
                [["attention", "attention"]],
                width=36,
            )
        drawing.box(
            left + 78, 216, f"maximum m = {largest:g}\nsum l = {total:.3f}\nsum o = {output:.2f}", "norm",
            width=128, height=62, size=11,
        )  # fmt: skip
        drawing.arrow((left + 90, 172), (left + 90, 185))
        if tile == 0:
            drawing.arrow((150, 216), (200, 216))
            drawing.label(175, 206, "× e⁻²", size=11)
    assert state is not None
    drawing.arrow((246, 247), (246, 268))
    drawing.label(246, 280, f"o / l = {state[2]:.2f} / {state[1]:.3f} = {state[2] / state[1]:.2f}", size=11, bold=True)
    return drawing


DRAWINGS = {
    "head-splitting": head_splitting,
    "shared-heads": shared_heads,
    "cache-growth": cache_growth,
    "tiled-attention": tiles,
}
