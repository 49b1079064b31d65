"""Drawings of teacher forcing and of a beam search."""

from figures.svg import Drawing


def teacher_forcing() -> Drawing:
    """Draws the inputs and labels of a decoder, which is given the target shifted right."""
    drawing = Drawing(350, 206)
    encoder = drawing.box(60, 105, "encoder", "attention", width=96, height=44)
    decoder = drawing.box(237, 105, "decoder, causal mask", "attention", width=214, height=44)
    drawing.arrow(encoder.right, decoder.left)
    drawing.label(60, 172, "b f a c EOS", size=11)
    drawing.label(60, 192, "source", size=11, bold=True)
    drawing.arrow((60, 162), encoder.bottom)
    for i, (token, label) in enumerate(zip(("SOS", "c", "a", "f", "b"), ("c", "a", "f", "b", "EOS"), strict=True)):
        x = 150 + 43.5 * i
        drawing.arrow((x, 162), (x, decoder.bottom[1]))
        drawing.label(x, 172, token, size=11)
        drawing.arrow((x, decoder.top[1]), (x, 54))
        drawing.label(x, 43, label, size=11)
        if i < 4:
            for start, end in ((48, decoder.top[1]), (decoder.bottom[1], 163)):  # towards the next input
                drawing.line((x + 7 + 0.25 * (start - 48), start), (x + 7 + 0.25 * (end - 48), end), dashed=True)
    drawing.label(237, 192, "target, shifted right", size=11, bold=True)
    drawing.label(237, 22, "labels", size=11, bold=True)
    return drawing


def beam() -> Drawing:
    """Draws the hypotheses of a beam of 2 in the example of the page on search."""
    drawing = Drawing(350, 216)
    start = drawing.box(30, 118, "SOS", width=46)
    words = {
        "the": drawing.box(118, 66, "the\n0.55", "chosen", width=58),
        "a": drawing.box(118, 170, "a\n0.45", "chosen", width=58),
    }
    for word in words.values():
        drawing.arrow((start.right[0], 118), (70, 118), (70, word.y), word.left)
    ends = (
        ("the", 26, "the EOS\n0.1375", "plain"), ("the", 66, "the dog\n0.22", "chosen"),
        ("the", 106, "the cat\n0.1925", "plain"), ("a", 150, "a dog\n0.405", "chosen"),
        ("a", 190, "a cat\n0.045", "plain"),
    )  # fmt: skip
    for word, y, text, kind in ends:
        box = drawing.box(228, y, text, kind, width=84, height=36)
        first = words[word]
        if y == first.y:
            drawing.arrow(first.right, box.left)
        else:
            drawing.arrow(first.right, (166, first.y), (166, y), box.left)
        if kind == "chosen":
            finished = drawing.box(318, y, "EOS", "norm", width=46)
            drawing.arrow(box.right, finished.left)
    return drawing


DRAWINGS = {"teacher-forcing": teacher_forcing, "beam": beam}
