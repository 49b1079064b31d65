"""Drawing of a product of whole numbers."""

from figures.svg import Drawing

X, Q_X = (1.1, -0.465, 2.54, 0.3), (55, -23, 127, 15)
W, Q_W = (0.423, -1.27, 0.05, 0.8), (42, -127, 5, 80)


def int8_row() -> Drawing:
    """Draws the four steps of a product of two rows in int8."""
    drawing = Drawing(350, 272)
    columns = [98 + 70 * place for place in range(4)]
    products = [a * b for a, b in zip(Q_X, Q_W, strict=True)]
    rows = (
        (16, "input", X, "plain"), (56, "÷ 0.02", Q_X, "chosen"),
        (104, "weight", W, "plain"), (144, "÷ 0.01", Q_W, "chosen"), (196, "products", products, "norm"),
    )  # fmt: skip
    for y, name, numbers, kind in rows:
        drawing.label(4, y, name, anchor="start", size=11)
        for x, number in zip(columns, numbers, strict=True):
            drawing.box(x, y, f"{number:g}".replace("-", "−"), kind, width=62, height=24)
    for x in columns:
        drawing.arrow((x, 28), (x, 43))
        drawing.arrow((x, 116), (x, 131))
        drawing.arrow((x, 156), (x, 183))
    drawing.label(4, 254, "sum", anchor="start", size=11)
    sum_box = drawing.box(columns[1] - 36, 254, str(sum(products)), "norm", width=74, height=24)
    result = drawing.box(columns[3] - 5, 254, f"{sum(products) * 0.02 * 0.01:.3f}", "output", width=74, height=24)
    for x in columns:
        drawing.line((x, 208), (x, 224))
    drawing.line((columns[0], 224), (columns[-1], 224))
    drawing.arrow((sum_box.x, 224), sum_box.top)
    drawing.arrow(sum_box.right, result.left)
    drawing.label((sum_box.right[0] + result.left[0]) / 2, 243, "× 0.02 × 0.01", size=11)
    return drawing


DRAWINGS = {"int8-row": int8_row}
