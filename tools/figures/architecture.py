"""Drawings of the model, its layers and its attention."""

from itertools import pairwise

from figures.svg import Box, Drawing

DROPOUT = "dropout, in training: × 0 with probability p, else × 1 / (1 − p)"


def residual(drawing: Drawing, start: float, box: Box, end: Box, side: int) -> None:
    """Draws the path of a residual connection around a box, on its left (-1) or right (1) side."""
    x = box.x + side * (box.width / 2 + 10)
    edge = end.left if side < 0 else end.right
    drawing.arrow((box.x, start), (x, start), (x, end.y), edge)


def dropped(drawing: Drawing, box: Box, end: Box) -> None:
    """Draws the dropout between a box and what is above it."""
    dropout = drawing.box(box.x, (box.top[1] + end.bottom[1]) / 2, "dropout", width=64, height=18, size=11)
    drawing.arrow(box.top, dropout.bottom)
    drawing.arrow(dropout.top, end.bottom)


def model() -> Drawing:
    """Draws the whole model with its N layers as one, as in Fig. 1 of the paper."""
    drawing = Drawing(350, 738)
    left, right, width = 92, 262, 126
    drawing.label(175, 728, DROPOUT, size=11)
    drawing.label(left, 704, "source tokens (B, S)")
    drawing.label(right, 704, "target so far (B, T)")
    starts = {}
    for x, name in ((left, "source embedding"), (right, "target embedding")):
        embedding = drawing.box(x, 666, f"{name}\n× √d_model", "embedding", width=width)
        drawing.arrow((x, 694), embedding.bottom)
        total = drawing.plus(x, 622)
        drawing.arrow(embedding.top, total.bottom)
        drawing.arrow((177 + (-29 if x == left else 29), 622), total.right if x == left else total.left)
        starts[x] = drawing.box(x, 594, "dropout", width=64, height=18, size=11)
        drawing.arrow(total.top, starts[x].bottom)
    drawing.label(177, 613, "positional", size=11)
    drawing.label(177, 626, "encoding", size=11)

    drawing.frame(8, 394, 164, 180)
    drawing.label(14, 383, "encoder × N", anchor="start", size=11, bold=True)
    y = starts[left].top[1]
    for text, kind, centre in (("self-attention", "attention", 541), ("feed-forward", "feed-forward", 455)):
        block = drawing.box(left, centre - 6, text, kind, width=width)
        norm = drawing.box(left, centre - 44, "dropout, add & norm", "norm", width=width, size=11)
        drawing.arrow((left, y), block.bottom)
        drawing.arrow(block.top, norm.bottom)
        residual(drawing, block.bottom[1] + 9, block, norm, -1)
        y = norm.top[1]
    top = y

    drawing.frame(178, 208, 166, 366)
    drawing.label(184, 197, "decoder × N", anchor="start", size=11, bold=True)
    y = starts[right].top[1]
    blocks = (
        ("masked\nself-attention", "attention", 531), ("cross-attention", "attention", 416),
        ("feed-forward", "feed-forward", 295),
    )  # fmt: skip
    for text, kind, centre in blocks:
        block = drawing.box(right, centre, text, kind, width=width)
        norm = drawing.box(
            right, centre - (46 if "\n" in text else 38), "dropout, add & norm", "norm", width=width, size=11
        )
        drawing.arrow((right, y), block.bottom)
        drawing.arrow(block.top, norm.bottom)
        residual(drawing, block.bottom[1] + 9, block, norm, 1)
        y = norm.top[1]
        if text == "cross-attention":
            drawing.line((left, top), (left, 350), (171, 350))
            drawing.arrow((171, 350), (171, 416), block.left)
            drawing.label(90, 340, "keys and values", size=11)
    linear = drawing.box(right, 160, "linear", "output", width=width)
    softmax = drawing.box(right, 115, "softmax", "output", width=width)
    drawing.arrow((right, y), linear.bottom)
    drawing.arrow(linear.top, softmax.bottom)
    drawing.arrow(softmax.top, (right, 84))
    drawing.label(right, 58, "probabilities of the")
    drawing.label(right, 73, "next token (B, T, V)")
    drawing.crop(46)
    return drawing


def layer(title: str, length: str, blocks: tuple[tuple[str, str, str], ...]) -> Drawing:
    """Draws a layer with its shapes; each block is a text, a kind and a note on its right side."""
    height = 92 + 138 * len(blocks)
    drawing = Drawing(340, height + 22)
    x, width = 122, 140
    y = height - 32.0
    drawing.label(170, height + 12, DROPOUT, size=10)
    drawing.label(x, height - 12, f"{title} (B, {length}, 512)")
    for text, kind, note in blocks:
        block = drawing.box(x, y - 42, text, kind, width=width)
        total = drawing.plus(x, y - 108)
        norm = drawing.box(x, y - 134, "layer norm", "norm", width=width, height=24)
        drawing.arrow((x, y + 8 if y > height - 40 else y), block.bottom)
        dropped(drawing, block, total)
        drawing.arrow(total.top, norm.bottom)
        residual(drawing, block.bottom[1] + 8, block, total, -1)
        for row, line in enumerate(note.split("\n")):
            drawing.label(x + width / 2 + 12, y - 42 + 14 * (row - note.count("\n") / 2), line, anchor="start", size=11)
        y = norm.top[1] + 0.0
    drawing.arrow((x, y), (x, y - 16))
    drawing.label(x, y - 24, f"output (B, {length}, 512)")
    return drawing


def encoder_layer() -> Drawing:
    """Draws the encoder layer of the paper."""
    return layer("input", "S", (
        ("multi-head\nself-attention", "attention", "Q, K, V = input\nscores (B, 8, S, S)"),
        ("feed-forward", "feed-forward", "inner (B, S, 2048)"),
    ))  # fmt: skip


def decoder_layer() -> Drawing:
    """Draws the decoder layer of the paper."""
    return layer("input", "T", (
        ("masked multi-head\nself-attention", "attention", "Q, K, V = input\ncausal mask\nscores (B, 8, T, T)"),
        ("multi-head\ncross-attention", "attention", "K, V = encoder\noutput (B, S, 512)\nscores (B, 8, T, S)"),
        ("feed-forward", "feed-forward", "inner (B, T, 2048)"),
    ))  # fmt: skip


def scaled_dot_product_attention() -> Drawing:
    """Draws Eq. 1 of the paper with the shapes of one head."""
    drawing = Drawing(340, 422)
    drawing.label(170, 414, DROPOUT, size=10)
    q, k, v = 60, 150, 250
    for x, name, length in ((q, "Q", "T"), (k, "K", "S"), (v, "V", "S")):
        drawing.label(x, 388, f"{name} ({length}, d_k)")
    product = drawing.box(105, 340, "Q Kᵀ", "attention", width=130)
    drawing.arrow((q, 378), (q, product.bottom[1]))
    drawing.arrow((k, 378), (k, product.bottom[1]))
    steps = [product]
    for y, text, kind in (
        (285, "÷ √d_k", "plain"), (230, "mask (optional)", "plain"), (175, "softmax over S", "plain"),
    ):  # fmt: skip
        steps.append(drawing.box(105, y, text, kind, width=130))
    for below, above in pairwise(steps):
        drawing.arrow(below.top, above.bottom)
    for y, text in ((312, "scores (T, S)"), (202, "-∞ where masked"), (153, "weights (T, S)")):
        drawing.label(113, y, text, anchor="start", size=11)
    drawing.label(143, 131, "p = 0 in the paper", anchor="start", size=11)
    result = drawing.box(178, 88, "weights · V", "attention", width=200)
    dropped(drawing, steps[-1], Box(105, result.y, 0, result.height))
    drawing.arrow((v, 378), (v, result.bottom[1]))
    drawing.arrow(result.top, (178, 50))
    drawing.label(178, 38, "output (T, d_k)")
    drawing.crop(26)
    return drawing


def multi_head_attention() -> Drawing:
    """Draws the heads of multi-head attention with the shapes of the base model."""
    drawing = Drawing(350, 480)
    for x, name, length in ((70, "query", "T"), (175, "key", "S"), (280, "value", "S")):
        drawing.label(x, 432, name, bold=True)
        drawing.label(x, 448, f"(B, {length}, 512)", size=11)
        box = drawing.box(x, 375, f"W_{name[0]}", width=72, height=28)
        drawing.arrow((x, 424), box.bottom)
        drawing.arrow(box.top, (x, 309))
        side = -1 if name == "value" else 1
        anchor = "end" if name == "value" else "start"
        drawing.label(x + 5 * side, 347 if name == "value" else 325, f"(B, 8, {length}, 64)", anchor=anchor, size=10)
    heads = drawing.box(175, 286, "scaled dot-product attention", "attention", width=290, height=44)
    drawing.copies(heads, 2)
    drawing.label(328, 246, "8 heads", anchor="end", size=11)
    concat = drawing.box(175, 195, "concatenate the heads", "plain", width=200)
    drawing.arrow((175, 256), concat.bottom)
    drawing.label(183, 230, "(B, 8, T, 64)", anchor="start", size=11)
    output = drawing.box(175, 130, "W_o", "plain", width=200, height=28)
    drawing.arrow(concat.top, output.bottom)
    drawing.label(183, 163, "(B, T, 512)", anchor="start", size=11)
    dropped(drawing, output, Box(175, 58, 0, 0))
    drawing.label(175, 46, "output (B, T, 512)")
    drawing.label(175, 472, DROPOUT, size=10)
    drawing.crop(34)
    return drawing


def norm_orders() -> Drawing:
    """Draws a sub-layer with the norm after the sum (post) and before the sub-layer (pre)."""
    drawing = Drawing(350, 352)
    drawing.label(175, 342, DROPOUT, size=10)
    for x, title in ((95, "post-norm (the paper)"), (262, "pre-norm (the default)")):
        drawing.label(x, 14, title, bold=True)
        drawing.label(x, 318, "x")
    post, pre, width = 95, 262, 116
    block = drawing.box(post, 216, "sub-layer", "attention", width=width)
    total = drawing.plus(post, 130)
    norm = drawing.box(post, 80, "layer norm", "norm", width=width)
    drawing.arrow((post, 310), block.bottom)
    dropped(drawing, block, total)
    drawing.arrow(total.top, norm.bottom)
    residual(drawing, 285, block, total, -1)
    drawing.arrow(norm.top, (post, 34))
    norm = drawing.box(pre, 260, "layer norm", "norm", width=width)
    block = drawing.box(pre, 216, "sub-layer", "attention", width=width)
    total = drawing.plus(pre, 130)
    drawing.arrow((pre, 310), norm.bottom)
    drawing.arrow(norm.top, block.bottom)
    dropped(drawing, block, total)
    residual(drawing, 290, block, total, -1)
    drawing.arrow(total.top, (pre, 34))
    return drawing


DRAWINGS = {
    "model": model,
    "encoder-layer": encoder_layer,
    "decoder-layer": decoder_layer,
    "scaled-dot-product-attention": scaled_dot_product_attention,
    "multi-head-attention": multi_head_attention,
    "norm-orders": norm_orders,
}
