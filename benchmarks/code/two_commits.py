"""Compares two checkouts of this project side by side: decoding, and steps of training.

Each checkout runs in a process of its own, and the processes take turns, so that other load on the machine affects both
alike. A ratio is the time of the first checkout over that of the second, taken turn by turn. The model is a bundle that
both can load; checkouts from before 0.2.0 can be compared in decoding only.

Usage: python benchmarks/code/two_commits.py FIRST SECOND --model BUNDLE --text FILE [--turns 12] [--out FILE]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

DECODING = """
import sys, time, torch
from transformer import load
from transformer.decoding import Search
model, text, precision = sys.argv[1:]
torch.set_num_threads(2)
lines = open(text, encoding="utf-8").read().splitlines()
translators = {beam: load(model, precision=precision, search=Search(beam=beam, max_tokens=16)) for beam in (1, 4)}
for translator in translators.values():
    translator.translations(lines[:4])
print("ready", flush=True)
for order in sys.stdin:
    beam, n = map(int, order.split())
    start = time.perf_counter()
    translators[beam].translations(lines[:n])
    print(time.perf_counter() - start, flush=True)
"""
TRAINING = """
import sys, time, numpy, torch
from transformer import build_transformer
from transformer.data.dataset import pair_batch
from transformer.runtime.allocator import retain_heap
from transformer.training.backend import choose_backend, enlarge_onednn_cache
from transformer.training.objectives.translation import TranslationObjective
torch.set_num_threads(2)
retain_heap()
enlarge_onednn_cache()
torch.manual_seed(1)
tiny = dict(d_model=128, N=4, h=4, d_ff=256, dropout=0.3)
vocabulary, sizes, rows, length = {"tiny": (10_000, tiny, 160, 24), "base": (32_000, {}, 32, 32)}[sys.argv[3]]
model = build_transformer(vocabulary, vocabulary, 64, 64, norm_order="post", share_embeddings="all", **sizes)
objective, backend = TranslationObjective(model, 0.1).train(), choose_backend("cpu", "float32")
optimizer = torch.optim.Adam(objective.parameters(), lr=1e-4, fused=True)
draw = numpy.random.default_rng(0)
batch = pair_batch(*[[draw.integers(4, vocabulary, length).astype("int32") for _ in range(rows)] for _ in "st"])
def step():
    with backend.compute_context():
        loss = objective(batch).loss_sum
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
step()
step()
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    step()
    print(time.perf_counter() - start, flush=True)
"""
ORDERS = [(beam, n) for beam in (1, 4) for n in (1, 64)]


class Side:
    """A checkout in a process of its own."""

    def __init__(self, checkout: Path, program: str, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "2"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def seconds(self, order: str) -> float:
        """Sends an order and returns the seconds that it took."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        return float(self._read())


def compare(sides: list[Side], order: str, turns: int) -> dict[str, float]:
    """Returns the median ratio of the times, with the least and the most."""
    ratios: list[float] = []
    for turn in range(turns):
        first, second = sides if turn % 2 == 0 else sides[::-1]
        seconds = {first: first.seconds(order), second: second.seconds(order)}
        ratios.append(seconds[sides[0]] / seconds[sides[1]])
    return {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}


def main() -> None:
    """Runs all comparisons and prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--training", action="store_true", help="compare steps of training, too")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for precision in ("int8", "float32"):
        sides = [
            Side(side, DECODING, options.model, options.text, precision) for side in (options.first, options.second)
        ]
        for beam, n in ORDERS:
            results[f"{precision}, beam {beam}, {n}"] = compare(sides, f"{beam} {n}", options.turns)
        for side in sides:
            side.process.kill()
    for shape in ("tiny", "base") if options.training else ():
        sides = [Side(checkout, TRAINING, "", "", shape) for checkout in (options.first, options.second)]
        results[f"training, {shape}"] = compare(sides, "step", options.turns)
    for name, result in results.items():
        print(f"{name:<24}{result['ratio']:6.3f}  ({result['least']:.2f} to {result['most']:.2f})")
    if options.out:
        options.out.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
