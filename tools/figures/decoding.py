"""Drawings of teacher forcing, of greedy decoding and of a beam search."""

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


def decoding_steps() -> Drawing:
    """Draws greedy decoding unrolled in time, with its cache, above the one pass of teacher forcing."""
    tokens = ("SOS", "f", "c", "b", "a", "EOS")
    drawing = Drawing(350, 428)
    places = [38 + 66 * step for step in range(5)]
    drawing.label(4, 10, "use: five passes, one after another", anchor="start", bold=True)
    for step, x in enumerate(places):
        box = drawing.box(x, 82, f"step {step + 1}", "attention", width=56, height=26, size=11)
        drawing.label(x, 44, tokens[step + 1], bold=True)
        drawing.arrow(box.top, (x, 54))
        drawing.arrow((x, 117), box.bottom)
        drawing.label(x, 127, tokens[step], size=11)
        if step < 4:  # the next step reads it
            drawing.line((x + 12, 44), (x + 33, 44), (x + 33, 127), dashed=True)
            drawing.arrow((x + 33, 127), (x + 50, 127))
        kinds = [["chosen"] if position == step else ["attention"] for position in range(step + 1)]
        names = [[token] for token in tokens[: step + 1]]
        drawing.table(x - 20, 168, names[::-1], kinds[::-1], width=40, height=16, size=10)
        drawing.arrow((x + 17, 168), (x + 17, 95))
    drawing.label(4, 158, "cache", anchor="start", size=11)
    encoder = drawing.box(
        170, 278, "cross-attention: keys and values of the source, once", width=332, height=24, size=11
    )
    for x in places:
        drawing.arrow((x + 25, encoder.top[1]), (x + 25, 95))
    drawing.line((4, 304), (346, 304), dashed=True)
    drawing.label(4, 320, "training: one pass, the target is known", anchor="start", bold=True)
    wide = drawing.box(
        170, 378, "all five positions at once, under the causal mask", "attention", width=332, height=26, size=11
    )
    for step, x in enumerate(places):
        drawing.label(x, 344, tokens[step + 1], bold=True)
        drawing.arrow((x, wide.top[1]), (x, 354))
        drawing.arrow((x, 408), (x, wide.bottom[1]))
        drawing.label(x, 417, tokens[step])
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


DRAWINGS = {"teacher-forcing": teacher_forcing, "decoding-steps": decoding_steps, "beam": beam}
