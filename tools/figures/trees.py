"""Drawing of a constituency tree above the line of symbols that stands for it."""

from figures.svg import Box, Drawing

SYMBOLS = ("(S", "(NP", "XX", "XX", ")NP", "(VP", "XX", ")VP", ".", ")S")
WORDS = ("The", "cat", "sleeps", ".")
PLACES = {"S": (168, 24), "NP": (107, 74), "VP": (225, 74)}
"""Centres of the phrases."""


def linearized_tree() -> Drawing:
    """Draws a tree, its words below, and the line of symbols with a box for each phrase."""
    drawing = Drawing(348, 268)
    boxes = {label: drawing.box(x, y, label, "chosen", width=40) for label, (x, y) in PLACES.items()}
    columns = (83, 131, 225, 293)
    words = [drawing.box(x, 124, word, width=44, size=11) for x, word in zip(columns, WORDS, strict=True)]
    for parent, child in (
        (boxes["S"], boxes["NP"]), (boxes["S"], boxes["VP"]), (boxes["NP"], words[0]), (boxes["NP"], words[1]),
        (boxes["VP"], words[2]),
    ):  # fmt: skip
        drawing.line(parent.bottom, child.top)
    drawing.line(boxes["S"].bottom, (words[3].x, 61), words[3].top)
    size = 34
    line = [
        drawing.box(
            21 + size * place, 206, symbol, "chosen" if len(symbol) > 1 and symbol != "XX" else "plain", width=32
        )
        for place, symbol in enumerate(SYMBOLS)
    ]
    leaves = [box for box, symbol in zip(line, SYMBOLS, strict=True) if symbol in ("XX", ".")]
    for word, leaf in zip(words, leaves, strict=True):
        drawing.line(word.bottom, leaf.top, dashed=True)
    for label, depth in (("NP", 14), ("VP", 14), ("S", 30)):
        _bracket(drawing, line[SYMBOLS.index(f"({label}")], line[SYMBOLS.index(f"){label}")], depth)
    return drawing


def _bracket(drawing: Drawing, first: Box, last: Box, depth: float) -> None:
    """Draws a line below that joins an opening bracket to its closing one."""
    (x, y), (end, _) = first.bottom, last.bottom
    drawing.line((x, y), (x, y + depth), (end, y + depth), (end, y))


DRAWINGS = {"linearized-tree": linearized_tree}
