"""Drawings of encoder-only models: the input of BERT, and interpolated positions."""

from figures.svg import Drawing

TOKENS = ("[CLS]", "rain", "falls", "[SEP]", "we", "stay", "[SEP]")
N_FIRST = 4
"""Number of tokens of the first text, with its special tokens."""
OLD, NEW = 4, 6
"""Number of patches of a row, before and after."""


def bert_input() -> Drawing:
    """Draws the three vectors of each token of two texts, and the path to the next-sentence prediction."""
    drawing = Drawing(350, 316)
    columns = [79 + 41 * place for place in range(len(TOKENS))]
    drawing.label(columns[0] - 18, 16, "B follows A?", anchor="start", bold=True)
    boxes = [
        drawing.box(columns[0] + 46, 50, "linear layer, softmax", "output", width=136, height=24),
        drawing.box(columns[0] + 46, 94, "pooler", "feed-forward", width=136, height=24),
    ]
    drawing.arrow((columns[0], boxes[0].top[1]), (columns[0], 26))
    drawing.arrow((columns[0], boxes[1].top[1]), (columns[0], boxes[0].bottom[1]))
    encoder = drawing.box(202, 148, "encoder", "attention", width=290, height=34)
    drawing.arrow((columns[0], encoder.top[1]), (columns[0], boxes[1].bottom[1]))
    for place, (x, token) in enumerate(zip(columns, TOKENS, strict=True)):
        texts = (token, "A" if place < N_FIRST else "B", str(place))
        for row, (text, kind) in enumerate(zip(texts, ("embedding", "chosen", "plain"), strict=True)):
            drawing.box(x, 210 + 44 * row, text, kind, width=38, height=26)
            if row:
                drawing.label(x, 210 + 44 * row - 22, "+")
        drawing.arrow((x, 197), (x, encoder.bottom[1]))
    for row, name in enumerate(("token", "segment", "position")):
        drawing.label(2, 210 + 44 * row, name, anchor="start", size=11)
    return drawing


def interpolation() -> Drawing:
    """Draws a row of patches of one size above the same row in smaller patches, with the weights of each mean."""
    left, width, top, bottom = 15, 320, 20, 124
    drawing = Drawing(350, 160)
    old = [
        drawing.box(left + width * (place + 0.5) / OLD, top, f"p_{place}", "embedding", width=width / OLD - 3)
        for place in range(OLD)
    ]
    for place in range(NEW):
        centre = min(max((place + 0.5) * OLD / NEW - 0.5, 0), OLD - 1)
        parts = [(int(centre) + 1, centre % 1)] if centre % 1 else []
        parts = [(int(centre), 1 - centre % 1), *parts]
        terms = [f"{weight:.2g} p_{number}" for number, weight in parts]
        text = "\n".join([f"n_{place}", *terms, *[""] * (2 - len(terms))])
        x = left + width * (place + 0.5) / NEW
        box = drawing.box(x, bottom, text, "chosen", width=width / NEW - 3, height=58)
        for number, _ in parts:
            drawing.line(old[number].bottom, box.top)
    return drawing


DRAWINGS = {"bert-input": bert_input, "position-interpolation": interpolation}
