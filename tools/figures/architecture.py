"""Drawings of the model, its layers and its attention."""

from itertools import pairwise

from figures.svg import Box, Drawing


def residual(drawing: Drawing, start: float, box: Box, end: Box, side: int) -> None:
    """Draws the path of a residual connection around a box, on its left (-1) or right (1) side."""
    x = box.x + side * (box.width / 2 + 10)
    edge = end.left if side < 0 else end.right
    drawing.arrow((box.x, start), (x, start), (x, end.y), edge)


def model() -> Drawing:
    """Draws the whole model with its N layers as one, as in Fig. 1 of the paper."""
    drawing = Drawing(350, 690)
    left, right, width = 92, 262, 126
    drawing.label(left, 678, "source tokens (B, S)")
    drawing.label(right, 678, "target so far (B, T)")
    sums = {}
    for x, name in ((left, "source embedding"), (right, "target embedding")):
        embedding = drawing.box(x, 640, f"{name}\n× √d_model", "embedding", width=width)
        drawing.arrow((x, 668), embedding.bottom)
        sums[x] = drawing.plus(x, 595)
        drawing.arrow(embedding.top, sums[x].bottom)
    drawing.label(177, 586, "positional", size=11)
    drawing.label(177, 599, "encoding", size=11)
    drawing.arrow((148, 595), sums[left].right)
    drawing.arrow((206, 595), sums[right].left)

    drawing.frame(8, 394, 164, 180)
    drawing.label(14, 383, "encoder × N", anchor="start", size=11, bold=True)
    y = sums[left].top[1]
    for text, kind, centre in (("self-attention", "attention", 541), ("feed-forward", "feed-forward", 455)):
        block = drawing.box(left, centre - 6, text, kind, width=width)
        norm = drawing.box(left, centre - 44, "add & norm", "norm", width=width)
        drawing.arrow((left, y), block.bottom)
        drawing.arrow(block.top, norm.bottom)
        residual(drawing, block.bottom[1] + 9, block, norm, -1)
        y = norm.top[1]
    top = y

    drawing.frame(178, 208, 166, 366)
    drawing.label(184, 197, "decoder × N", anchor="start", size=11, bold=True)
    y = sums[right].top[1]
    blocks = (
        ("masked\nself-attention", "attention", 531), ("cross-attention", "attention", 416),
        ("feed-forward", "feed-forward", 295),
    )  # fmt: skip
    for text, kind, centre in blocks:
        block = drawing.box(right, centre, text, kind, width=width)
        norm = drawing.box(right, centre - (46 if "\n" in text else 38), "add & norm", "norm", width=width)
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
    height = 92 + 112 * len(blocks)
    drawing = Drawing(340, height)
    x, width = 122, 140
    y = height - 32.0
    drawing.label(x, height - 12, f"{title} (B, {length}, 512)")
    for text, kind, note in blocks:
        block = drawing.box(x, y - 42, text, kind, width=width)
        total = drawing.plus(x, y - 82)
        norm = drawing.box(x, y - 112 + 4, "layer norm", "norm", width=width, height=24)
        drawing.arrow((x, y + 8 if y > height - 40 else y), block.bottom)
        drawing.arrow(block.top, total.bottom)
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
    drawing = Drawing(340, 400)
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
    for y, text in ((312, "scores (T, S)"), (202, "-∞ where masked"), (140, "weights (T, S)")):
        drawing.label(113, y, text, anchor="start", size=11)
    result = drawing.box(178, 95, "weights · V", "attention", width=200)
    drawing.arrow(steps[-1].top, (105, result.bottom[1]))
    drawing.arrow((v, 378), (v, result.bottom[1]))
    drawing.arrow(result.top, (178, 52))
    drawing.label(178, 40, "output (T, d_k)")
    drawing.crop(28)
    return drawing


def multi_head_attention() -> Drawing:
    """Draws the heads of multi-head attention with the shapes of the base model."""
    drawing = Drawing(350, 460)
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
    drawing.arrow(output.top, (175, 84))
    drawing.label(175, 72, "output (B, T, 512)")
    drawing.crop(60)
    return drawing


def norm_orders() -> Drawing:
    """Draws a sub-layer with the norm after the sum (post) and before the sub-layer (pre)."""
    drawing = Drawing(350, 330)
    for x, title in ((95, "post-norm (the paper)"), (262, "pre-norm (the default)")):
        drawing.label(x, 14, title, bold=True)
        drawing.label(x, 318, "x")
    post, pre, width = 95, 262, 116
    block = drawing.box(post, 210, "sub-layer", "attention", width=width)
    total = drawing.plus(post, 130)
    norm = drawing.box(post, 80, "layer norm", "norm", width=width)
    drawing.arrow((post, 310), block.bottom)
    drawing.arrow(block.top, total.bottom)
    drawing.arrow(total.top, norm.bottom)
    residual(drawing, 285, block, total, -1)
    drawing.arrow(norm.top, (post, 34))
    norm = drawing.box(pre, 250, "layer norm", "norm", width=width)
    block = drawing.box(pre, 190, "sub-layer", "attention", width=width)
    total = drawing.plus(pre, 130)
    drawing.arrow((pre, 310), norm.bottom)
    drawing.arrow(norm.top, block.bottom)
    drawing.arrow(block.top, total.bottom)
    residual(drawing, 285, block, total, -1)
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
