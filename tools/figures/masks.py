"""Drawing of the masks of attention."""

from figures.svg import Drawing

TOKENS = ("A", "man", "sleeps", ".", "PAD")


def masks() -> Drawing:
    """Draws a padding mask, a causal mask and both combined as grids of queries and keys."""
    n, size = len(TOKENS), 20
    padding = [[key < n - 1 for key in range(n)] for _ in range(n)]
    causal = [[key <= query for key in range(n)] for query in range(n)]
    both = [[a and b for a, b in zip(*rows, strict=True)] for rows in zip(padding, causal, strict=True)]
    drawing = Drawing(340, 550)
    for place, (title, grid) in enumerate((("padding mask", padding), ("causal mask", causal), ("both", both))):
        y = 20 + 182 * place
        drawing.label(10, y, title, anchor="start", bold=True)
        left, top = 120, y + 42
        drawing.cells(left, top, grid, size)
        for i, token in enumerate(TOKENS):
            drawing.label(left - 8, top + size * (i + 0.5), token, anchor="end", size=11)
            drawing.slanted(left + size * (i + 0.5), top - 6, token, size=11)
        drawing.label(left - 60, top + size * n / 2, "query", anchor="end", size=11)
        drawing.label(left + size * n + 34, top - 12, "key", anchor="start", size=11)
    return drawing


DRAWINGS = {"masks": masks}
