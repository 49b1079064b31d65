"""Drawing of the paths between two positions in the layers that the paper compares."""

from figures.svg import Drawing, Point, paint

N, STEP, LEFT = 9, 27, 118


def edge(drawing: Drawing, start: Point, end: Point, *, on_path: bool) -> None:
    """Draws a connection, thick if it is on the path from the first to the last position."""
    style = (
        f'stroke-width="2.5" stroke="{paint("series-2")}"' if on_path else 'stroke="currentColor" stroke-opacity="0.25"'
    )
    drawing.parts.append(f'<line x1="{start[0]:g}" y1="{start[1]:g}" x2="{end[0]:g}" y2="{end[1]:g}" {style}/>')


def rows(drawing: Drawing, bottom: float, layers: int) -> list[list[Point]]:
    """Returns the places of the positions, layer by layer from the input upwards."""
    return [[(LEFT + STEP * i, bottom - 34 * layer) for i in range(N)] for layer in range(layers + 1)]


def paths() -> Drawing:
    """Draws self-attention, a recurrence and dilated convolutions with the way from the first position to the last."""
    drawing = Drawing(350, 330)
    places = rows(drawing, 66, 1)
    for start in range(N):
        for end in range(N):
            edge(drawing, places[0][start], places[1][end], on_path=(start, end) == (0, N - 1))
    drawing.label(6, 38, "self-attention", anchor="start", size=11, bold=True)
    drawing.label(6, 56, "1 layer", anchor="start", size=11)
    all_places = list(places)
    places = rows(drawing, 176, 1)
    for i in range(N):
        edge(drawing, places[0][i], places[1][i], on_path=i == 0)
        if i:
            edge(drawing, places[1][i - 1], places[1][i], on_path=True)
    drawing.label(6, 148, "recurrence", anchor="start", size=11, bold=True)
    drawing.label(6, 166, "n steps", anchor="start", size=11)
    all_places += places
    places = rows(drawing, 306, 2)
    for layer, dilation in enumerate((1, 3)):
        way = {0: ((0, 2),), 1: ((2, 8),)}[layer]
        for end in range(N):
            for start in (end, end - dilation, end - 2 * dilation):
                if start >= 0:
                    edge(drawing, places[layer][start], places[layer + 1][end], on_path=(start, end) in way)
    drawing.label(6, 256, "convolutions", anchor="start", size=11, bold=True)
    drawing.label(6, 274, "log_k n layers", anchor="start", size=11)
    for row in [*all_places, *places]:
        for place in row:
            drawing.dot(*place, 4.5)
    return drawing


DRAWINGS = {"paths": paths}
