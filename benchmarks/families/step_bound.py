"""Breakdown of the time of a training step into its parts, and a lower bound, for the steps of `throughput.py`.

All calls of the compiled kernels in one step are recorded with their tensors and repeated, kind by kind, in the order
of the step: products (with the layouts they need), attention, GELU, sums of columns, the loss. The norm of the gradient
and the optimizer are timed as well. The rest of the step is spent in torch: norms, casts, embeddings, autograd itself.
Two figures are compared with it: the step of transformers, of which 1.5 times the speed is the target, and the
floating-point operations of the products divided by the rate of the processor's own instruction. The latter bounds any
program that multiplies in bfloat16.

Usage: python benchmarks/families/step_bound.py --peers FOLDER [--rounds 5] [--out FILE]
`benchmarks/families/engines/setup.sh` creates the environments of the peers.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
from jobs import KEPT
from report import command_line, hardware, spread
from throughput import CASES, ENGINES, published_models, run

KINDS = {
    "products": ["training.cpu_ops.linear.matmul", "training.objectives.cross_entropy.matmul"],
    "attention": ["kernels.attention_autograd.AttentionInputs._call"],
    "GELU": ["training.cpu_ops.linear.gelu", "training.cpu_ops.dispatch.gelu"],
    "sums of columns": ["training.cpu_ops.linear.column_sums"],
    "loss": ["kernels.cross_entropy.to_gradient"],
}
"""What is kept of a step, by the names under which it is called."""
STEPS = {"GPT-2 small": "training step, GPT-2 small", "ViT-B/16": "training step, ViT-B/16"}
ASKED = 1.5
WARM_UP, REPEATS = 4, 5
LANES, SUMS, TURNS = 16, 24, 100_000_000
PEAK = f"""
#include <immintrin.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
int main(int, char** of) {{
  __m512 sums[{SUMS}];
  for (int j = 0; j < {SUMS}; ++j) sums[j] = _mm512_set1_ps(j * std::atof(of[1]));
  const __m512bh x = (__m512bh)_mm512_set1_epi32(std::atoi(of[1]));
  const auto begun = std::chrono::steady_clock::now();
  for (long i = 0; i < {TURNS}; ++i) {{
#pragma GCC unroll {SUMS}
    for (int j = 0; j < {SUMS}; ++j) sums[j] = _mm512_dpbf16_ps(sums[j], x, x);
    asm volatile("");
  }}
  __m512 all = sums[0];
  for (int j = 1; j < {SUMS}; ++j) all = _mm512_add_ps(all, sums[j]);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  std::printf("%f %f", seconds.count(), _mm512_reduce_add_ps(all));
}}
"""
"""Multiplies what stays in registers, so as fast as the processor can; prints the seconds. Sums begin with numbers that
the compiler does not know: of sums that it sees to be equal it would compute one."""


def timed(work: Callable[[], object]) -> float:
    """Median seconds."""
    seconds: list[float] = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return median(seconds)


def peak(folder: Path, threads: int) -> float:
    """Floating-point operations a second of the processor's own products in bfloat16, all threads at once."""
    source, program = folder / "peak.cpp", folder / "peak"
    source.write_text(PEAK)
    subprocess.run(["g++", "-O3", "-march=cooperlake", source, "-o", program], check=True)

    def all_at_once() -> float:
        processes = [subprocess.Popen([program, "0"], stdout=subprocess.PIPE, text=True) for _ in range(threads)]
        return max(float(process.communicate()[0].split()[0]) for process in processes)

    return threads * TURNS * SUMS * LANES * 4 / median(all_at_once() for _ in range(REPEATS))


def parts(order: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Seconds of a whole step and of each of its parts."""
    sys.path.insert(0, str(ENGINES))
    from ours import training

    from transformer.training.step import train_step

    torch.set_num_threads(order["threads"])
    state, batch = training(order, folder)

    def step() -> None:
        train_step(state, [batch], 1e-5, 1.0)

    for _ in range(WARM_UP):
        step()
    whole = timed(step)
    kept: dict[str, list[Callable[[], object]]] = {kind: [] for kind in KINDS}
    operations = 0

    def keep(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal operations
            kept[kind].append(lambda: function(*args, **kwargs))
            if kind == "products":
                operations += 2 * args[0].numel() * args[1].size(1)
            return function(*args, **kwargs)

        return call

    replaced = [(kind, f"transformer.{name}") for kind, names in KINDS.items() for name in names]
    patches = [patch(name, keep(kind, _resolve(name))) for kind, name in replaced]
    for active in patches:
        active.start()
    with patch.object(state.optimizer, "zero_grad"):  # gradients stay, for the optimizer to be timed with
        step()
    for active in patches:
        active.stop()
    seconds = {kind: timed(lambda calls=calls: [call() for call in calls]) for kind, calls in kept.items()}
    gradients = [parameter.grad for parameter in state.objective.parameters() if parameter.grad is not None]
    seconds["norm of the gradient"] = timed(lambda: torch.nn.utils.get_total_norm(gradients))
    seconds["optimizer"] = timed(state.optimizer.step)
    return {"step": whole, "parts": seconds, "operations of products": operations}


def _resolve(name: str) -> Callable[..., Any]:
    """Returns the object with a dotted name."""
    import importlib

    path, names = name.split("."), []
    while True:
        try:
            value: Any = importlib.import_module(".".join(path))
            break
        except ModuleNotFoundError:
            names.insert(0, path.pop())
    for attribute in names:
        value = getattr(value, attribute)
    return value


def one(order: dict[str, Any]) -> dict[str, Any]:
    """`parts` in a process of its own, with memory kept."""
    call = [sys.executable, __file__, "--one", json.dumps(order)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=os.environ | KEPT)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Times every step and prints what its parts take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=Path(".peers"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(parts(arguments.one, Path(arguments.one["folder"]))))
        return
    python = arguments.peers / "transformers/bin/python"
    outcome: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        published_models(folder, python)
        for title, case in STEPS.items():
            order = {**CASES[case], "folder": name, "precision": "bf16", "threads": arguments.threads}
            ours, theirs, peaks = [], [], []
            for _ in range(arguments.rounds):
                ours.append(one(order))
                theirs.append(run(python, "transformers", order | {"out": f"{name}/out.npy"})["seconds"])
                peaks.append(peak(folder, arguments.threads))
            outcome[title] = figures(ours, theirs, peaks)
            print(title, json.dumps(outcome[title], indent=2), flush=True)
    result = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")), "threads": arguments.threads,
        "versions": {"python": platform.python_version(), "torch": torch.__version__}, "steps": outcome,
    }  # fmt: skip
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


def figures(ours: list[dict[str, Any]], theirs: list[float], peaks: list[float]) -> dict[str, Any]:
    """Seconds of the step, its parts and what bounds them, over all rounds."""
    seconds = {kind: spread([run["parts"][kind] for run in ours]) for kind in ours[0]["parts"]}
    step = median(run["step"] for run in ours)
    kernels = sum(figure["median"] for figure in seconds.values())
    least = ours[0]["operations of products"] / median(peaks)
    asked = median(theirs) / ASKED
    needed = seconds["products"]["median"] + seconds["optimizer"]["median"] + seconds["norm of the gradient"]["median"]
    return {
        "step": spread([run["step"] for run in ours]),
        "transformers, bf16": spread(theirs),
        "over transformers": spread([peer / run["step"] for peer, run in zip(theirs, ours, strict=True)]),
        "asked": asked,
        "parts": seconds | {"all else, by torch": {"median": step - kernels}},
        "peak of bf16 products, operations a second": spread(peaks),
        "products at that peak": least,
        "products, optimizer and norm alone": needed,
        "left of what is asked for all else": asked - needed,
        "all else takes": step - needed,
    }


if __name__ == "__main__":
    main()
