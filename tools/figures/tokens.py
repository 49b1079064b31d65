"""Drawings of tokenizers: the merges of a word, and its segmentations."""

from figures.svg import Drawing

WORD = "▁singing"
STEPS = (
    ("", "▁ s i n g i n g"), ("1: n g", "▁ s i ng i ng"), ("3: i ng", "▁ s ing ing"), ("5: ▁ s", "▁s ing ing"),
    ("6: ▁s ing", "▁sing ing"),
)  # fmt: skip
"""Merges by their number, and the symbols after each."""
LETTERS = "nowhere"
SEGMENTATIONS = (
    (("no", "0.03"), ("where", "0.006")), (("now", "0.008"), ("here", "0.01")),
    (("no", "0.03"), ("w", "0.01"), ("h", "0.01"), ("er", "0.02"), ("e", "0.02")),
)  # fmt: skip
"""Segmentations with the probabilities of their pieces, the most probable first."""


def merges() -> Drawing:
    """Draws the symbols of a word after each merge."""
    left, size, row = 94, 31, 44
    drawing = Drawing(left + size * len(WORD) + 4, row * len(STEPS) + 4)
    before: list[str] = []
    for number, (name, line) in enumerate(STEPS):
        y, start, symbols = row * number + 22, 0, line.split()
        drawing.label(4, y, name or "characters", anchor="start", size=11)
        for symbol in symbols:
            x = left + size * (start + len(symbol) / 2)
            is_new = bool(name) and symbol not in before
            drawing.box(x, y, symbol, "chosen" if is_new else "plain", width=size * len(symbol) - 4, height=25)
            if is_new:
                drawing.line((x, y - 13), (x, y - row + 13))
            start += len(symbol)
        before = symbols
    return drawing


def segmentations() -> Drawing:
    """Draws segmentations of a word below its letters, with the probabilities of the pieces."""
    left, size, row = 18, 45, 52
    drawing = Drawing(350, 32 + row * len(SEGMENTATIONS))
    for place, letter in enumerate(LETTERS):
        drawing.label(left + size * (place + 0.5), 14, letter, bold=True)
    for number, pieces in enumerate(SEGMENTATIONS):
        start = 0
        for piece, probability in pieces:
            x, width = left + size * (start + len(piece) / 2), size * len(piece) - 4
            kind = "plain" if number else "chosen"
            drawing.box(x, 54 + row * number, f"{piece}\n{probability}", kind, width=width)
            start += len(piece)
    return drawing


DRAWINGS = {"byte-pair-merges": merges, "unigram-segmentations": segmentations}
