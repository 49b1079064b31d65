"""Detection of lost lines by `transformer check`: recall, and false alarms on intact corpora.

Deletes one random line on one side, for 20 seeds and both sides. The shift counts as detected if exactly one shift is
reported, on the right side and at most 50 lines away. Further cases are several lost lines at once, lines lost near the
start and the end, and intact corpora, whole and cut to a few hundred pairs, in their order and sorted.

Usage: python benchmarks/data/shift_detection.py [--data FOLDER] [--out FILE]
"""

import argparse
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from transformer.data.quality.alignment import align
from transformer.data.quality.shifts import Shift, align_in_blocks
from transformer.runtime.machine import machine

SEEDS, NEAR_LINES, TATOEBA_LINES, SEVERAL = 20, 50, 50_000, (2, 5, 20)
FIRST_LINES = (100, 200, 300, 500, 1000)
Corpus = tuple[list[str], list[str]]


def main() -> None:
    """Runs all questions and prints one JSON object."""
    default = os.environ.get("TRANSFORMER_DATA", Path(__file__).parents[3] / "shared" / "data")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(default))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    multi30k = load(arguments.data / "multi30k" / "train")
    tatoeba = load(arguments.data / "tatoeba-en-de" / "train", TATOEBA_LINES)
    newstest = load(arguments.data / "wmt" / "newstest2014")
    small = multi30k[0][:300], multi30k[1][:300]
    corpora = {"multi30k": multi30k, "tatoeba": tatoeba, "newstest2014": newstest, "multi30k first 300": small}
    result = {
        "command": "OMP_NUM_THREADS=1 python benchmarks/data/shift_detection.py",
        "machine": machine(),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "found": f"one shift, the right side, at most {NEAR_LINES} lines away",
        "one line lost": {name: one_line_lost(corpus) for name, corpus in corpora.items()},
        "near the edges of multi30k": edges(multi30k),
        "several lines of multi30k lost": {str(n): several_lost(multi30k, n) for n in SEVERAL},
        "wrong pairs": {name: wrong_pairs(corpus) for name, corpus in corpora.items()},
        "nothing lost": dict(untouched(arguments.data)),
    }
    print(json.dumps(result, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


def load(stem: Path, most: int | None = None) -> Corpus:
    """Both sides of a corpus."""
    source, target = (
        stem.with_name(f"{stem.name}.{side}").read_text(encoding="utf-8").split("\n")[:-1][:most]
        for side in ("en", "de")
    )
    return source, target


def shifts(source: list[str], target: list[str]) -> list[Shift]:
    """Returns all reported shifts."""
    return [shift for part in align_in_blocks(source, target, len(source), len(target)) for shift in part.shifts()]


def one_line_lost(corpus: Corpus) -> dict[str, object]:
    """Measures detections, distance and time over all seeds, for each side."""
    figures: dict[str, object] = {"lines": len(corpus[0])}
    for side, name in enumerate(("source", "target")):
        distances: list[int | None] = []
        seconds: list[float] = []
        for seed in range(SEEDS):
            lost = random.Random(seed).randrange(len(corpus[0]))
            sides = [list(lines) for lines in corpus]
            del sides[side][lost]
            started = time.perf_counter()
            reports = shifts(*sides)
            seconds.append(time.perf_counter() - started)
            right = len(reports) == 1 and reports[0].size == (1 if side == 0 else -1)
            distances.append(abs(reports[0].unpaired_lines[0] - 1 - lost) if right else None)
        near = [distance for distance in distances if distance is not None and distance <= NEAR_LINES]
        figures[name] = {
            "found": f"{len(near)} of {SEEDS}",
            "exact": near.count(0),
            "largest_distance": max(near, default=None),
            "seconds_median": round(statistics.median(seconds), 2),
        }
    return figures


def edges(corpus: Corpus) -> dict[str, list[str]]:
    """Returns the shifts that are reported for a source line lost near the start or the end."""
    n = len(corpus[0])
    lost_lines = (1, 2, 3, 5, 10, n - 9, n - 4, n - 2, n - 1, n)
    reports = {line: shifts(corpus[0][: line - 1] + corpus[0][line:], corpus[1]) for line in lost_lines}
    return {
        f"line {line:,}": [f"line {shift.unpaired_lines[0]:,} ({shift.confidence})" for shift in report]
        for line, report in reports.items()
    }


def several_lost(corpus: Corpus, n: int) -> dict[str, int]:
    """Counts the detected of n lines lost on random sides, and all reported shifts."""
    draw = random.Random(n)
    lost = {line: draw.randrange(2) for line in draw.sample(range(len(corpus[0])), n)}
    sides = [[text for line, text in enumerate(lines) if lost.get(line) != side] for side, lines in enumerate(corpus)]
    numbers = [[line for line in range(len(corpus[0])) if lost.get(line) != side] for side in (0, 1)]
    reports = [(numbers[shift.size > 0][shift.unpaired_lines[0] - 1], int(shift.size < 0)) for shift in shifts(*sides)]
    near = [
        [shift for shift in reports if shift[1] == side and abs(shift[0] - line) <= NEAR_LINES]
        for line, side in lost.items()
    ]
    return {"lost": n, "found": sum(map(bool, near)), "told": len(reports)}


def wrong_pairs(corpus: Corpus, n: int = 20) -> str:
    """Counts the pairs with exchanged target lines among the n pairs with the worst fit."""
    source, target = corpus[0], list(corpus[1])
    wrong = random.Random(n).sample(range(len(target)), n)
    for one, other in zip(wrong[::2], wrong[1::2], strict=True):
        target[one], target[other] = target[other], target[one]
    alignment = align(source, target)
    worst = np.argsort(alignment.fit)[:n].tolist() if alignment else []
    return f"{len(set(worst) & set(wrong))} of the worst {n} are among {n} wrong ones in {len(target):,}"


def untouched(folder: Path) -> Iterator[tuple[str, int]]:
    """Yields the number of false alarms on intact corpora."""
    stems = ("multi30k/train", "multi30k/val", "tatoeba-en-de/train", "wmt/newstest2013", "wmt/newstest2014")
    for stem in stems:
        source, target = load(folder / stem)
        yield stem, len(shifts(source, target))
        for first in FIRST_LINES:
            yield f"{stem}, first {first}", len(shifts(source[:first], target[:first]))
        order = sorted(range(len(source)), key=lambda row: source[row])
        yield f"{stem}, sorted", len(shifts([source[row] for row in order], [target[row] for row in order]))


if __name__ == "__main__":
    main()
