"""Plot of learning rates over the steps of a run."""

from figures.svg import Drawing
from transformer.training.optim.schedule import Schedule, cosine_schedule, paper_peak, paper_schedule

STEPS = 20_000
LEFT, RIGHT, TOP, BOTTOM, HIGHEST = 52, 338, 14, 190, 8e-4


def schedules() -> Drawing:
    """Draws the schedule of the paper for three settings, and a cosine."""
    curves: list[tuple[str, Schedule]] = [
        ("paper, d_model 512, warm-up 4,000", paper_schedule(512, 4000)),
        ("paper, d_model 512, warm-up 8,000", paper_schedule(512, 8000)),
        ("paper, d_model 1024, warm-up 4,000", paper_schedule(1024, 4000)),
        ("cosine, warm-up 4,000, 20,000 steps", cosine_schedule(paper_peak(512, 4000), 4000, STEPS)),
    ]
    drawing = Drawing(350, 316)
    for tick in range(5):
        y = BOTTOM - (BOTTOM - TOP) * tick / 4
        drawing.grid_line(LEFT, RIGHT, y)
        drawing.label(LEFT - 6, y, f"{HIGHEST * tick / 4 * 1e4:g}e-4" if tick else "0", anchor="end", size=11)
        x = LEFT + (RIGHT - LEFT) * tick / 4
        drawing.label(x, BOTTOM + 14, f"{STEPS * tick // 4:,}", anchor="end" if tick == 4 else "middle", size=11)
    drawing.label((LEFT + RIGHT) / 2, BOTTOM + 32, "step", size=11)
    for row, (name, rate) in enumerate(curves):
        steps = [1, *range(200, STEPS + 1, 200)]
        places = [
            (LEFT + (RIGHT - LEFT) * step / STEPS, BOTTOM - (BOTTOM - TOP) * rate(step) / HIGHEST) for step in steps
        ]
        y = BOTTOM + 54 + 18 * row
        for points in (places, [(LEFT, y), (LEFT + 26, y)]):
            drawing.curve(points, f"series-{row + 1}", "6 3" if name.startswith("cosine") else "")
        drawing.label(LEFT + 34, y, name, anchor="start", size=11)
    return drawing


DRAWINGS = {"schedules": schedules}
