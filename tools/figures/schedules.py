"""Plot of learning rates over the steps of a run.

Usage: python tools/figures/schedules.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from figures.svg import Drawing, write
from transformer.training.optim.schedule import Schedule, cosine_schedule, paper_peak, paper_schedule

STEPS = 20_000
LEFT, RIGHT, TOP, BOTTOM, HIGHEST = 52, 338, 14, 190, 8e-4
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


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
        drawing.parts.append(
            f'<line x1="{LEFT}" y1="{y:g}" x2="{RIGHT}" y2="{y:g}" stroke="currentColor" stroke-opacity="0.2"/>'
        )
        drawing.label(LEFT - 6, y, f"{HIGHEST * tick / 4 * 1e4:g}e-4" if tick else "0", anchor="end", size=11)
        x = LEFT + (RIGHT - LEFT) * tick / 4
        drawing.label(x, BOTTOM + 14, f"{STEPS * tick // 4:,}", anchor="end" if tick == 4 else "middle", size=11)
    drawing.label((LEFT + RIGHT) / 2, BOTTOM + 32, "step", size=11)
    for row, ((name, rate), colour) in enumerate(zip(curves, COLOURS, strict=True)):
        steps = [1, *range(200, STEPS + 1, 200)]
        places = [
            (LEFT + (RIGHT - LEFT) * step / STEPS, BOTTOM - (BOTTOM - TOP) * rate(step) / HIGHEST) for step in steps
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dashes = ' stroke-dasharray="6 3"' if name.startswith("cosine") else ""
        style = f'fill="none" stroke="{colour}" stroke-width="2"{dashes}'
        drawing.parts.append(f'<polyline points="{path}" {style}/>')
        y = BOTTOM + 54 + 18 * row
        drawing.parts.append(f'<polyline points="{LEFT},{y} {LEFT + 26},{y}" {style}/>')
        drawing.label(LEFT + 34, y, name, anchor="start", size=11)
    return drawing


DRAWINGS = {"schedules": schedules}

if __name__ == "__main__":
    write({name: draw().svg() for name, draw in DRAWINGS.items()})
