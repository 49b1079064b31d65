"""Training steps on a GPU beside transformers, and the tests on a GPU: `make gpu-1`.

Measures, in this order, and skips what the file of results has:
- the tests marked `gpu`;
- losses of ours and of transformers' MarianMTModel with the same weights and token ids, without dropout, before and
  after updates, in float32 and bf16;
- ten updates of the paper's base and big, in bf16, of 512 pairs of 32 random tokens, V 32,000; both engines in memory,
  an update of each in turn, eager and compiled;
- a profile of one update of each.

`share_of_peak` divides the products of an update by the data sheet's rate of dense bfloat16 products, and
`share_of_product` by the rate of 8192 x 8192 products that is measured in the same run.

Usage: python benchmarks/gpu/training_step.py [--out FOLDER] [--minutes 7] [--again]
"""

import os
import re
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
sys.path.insert(1, str(Path(__file__).parents[1] / "training" / "engines"))
from engine import CHECK_BATCHES, Batch, Engine, Job, Sizes, check
from jobs import SHAPES, Shape, random_pairs, random_weights
from ledger import ROOT, Arguments, Ledger, has_package, in_turn, peak_rate, ratios, read_arguments, spread
from ours import Ours
from product_rates import largest_rate, step_products, total_flops

UPDATES, WARM_UPDATES, CHECK_UPDATES = 10, 3, 2
TOLERANCE = {"float32": 2e-5, "bfloat16": 1e-3}
SMALL = Shape(1, 16, 32, 2, 0.1, 1e-4, warm_steps=1, steps=2, check_steps=1)
PROFILE_ROWS = 25
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
TESTS = {True: ["tests/unit/training/test_gpu_training.py"], False: ["tests/unit"]}
"""What runs in small, and on a GPU."""


class Setting:
    """A size of model with its batches.

    Args:
        name: "base" or "big".
        arguments: Command line.
    """

    def __init__(self, name: str, arguments: Arguments) -> None:
        self.device, self.name, self.is_small = arguments.device, name, arguments.in_small
        self.shape = SMALL if arguments.in_small else SHAPES[name]
        self.vocabulary = 50 if arguments.in_small else 32_000
        self.pairs, self.length = (4, 5) if arguments.in_small else (512, 32)
        self.updates = 2 if arguments.in_small else UPDATES
        self.n_batches = WARM_UPDATES + self.updates
        self._weights: dict[str, torch.Tensor] = {}

    def batches(self, n: int, pairs: int | None = None) -> list[Batch]:
        """Returns batches of random token ids without padding, on the device."""
        made = random_pairs(self.vocabulary, n, pairs or self.pairs, self.length)
        return [
            Batch(*(x.to(self.device).long() for x in (b.src, b.tgt, b.labels)), b.scored_tokens, b.src.numel())
            for b in made
        ]

    def job(self, precision: str, *, compiled: bool = False, dropout: float | None = None) -> Job:
        """Returns the job of an engine, with weights that are the same for all."""
        shape, rate = self.shape, self.shape.dropout if dropout is None else dropout
        sizes = Sizes(shape.N, shape.d_model, shape.d_ff, shape.h, self.vocabulary, self.length, rate, "post")
        weights = {name: weight.to(self.device) for name, weight in self.weights().items()}
        return Job(
            sizes, weights, precision, compiled, plain_attention=False, checkpointed=False, label_smoothing=0.1,
            learning_rate=shape.learning_rate, clip_norm=1.0, device=self.device,
        )  # fmt: skip

    def weights(self) -> dict[str, torch.Tensor]:
        """Returns the weights that all engines start from, on the CPU."""
        if not self._weights:
            self._weights = random_weights(self.shape, self.vocabulary, self.length, "post")
        return self._weights

    def engine(self, name: str, precision: str, **options: Any) -> Engine:
        """Returns the engine "ours" or "transformers"."""
        if name == "ours":
            return Ours(self.job(precision, **options))
        from with_transformers import Marian

        return Marian(self.job(precision, **options))

    def engines(self, precision: str, **options: Any) -> dict[str, Engine]:
        """Returns both engines, or ours alone where transformers is not installed."""
        names = ("ours", "transformers") if has_package("transformers") else ("ours",)
        return {name: self.engine(name, precision, **options) for name in names}

    @property
    def flops(self) -> int:
        """Operations of the products of an update."""
        sizes = {name: getattr(self.shape, name) for name in ("N", "d_model", "d_ff", "h")}
        return total_flops(step_products(self.pairs, self.length, self.length, **sizes, vocabulary=self.vocabulary))


def run_tests(in_small: bool) -> dict[str, Any]:
    """Runs the tests marked `gpu`.

    Raises:
        RuntimeError: One fails, or none was run.
    """
    call = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "-rfE", *TESTS[in_small]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = (result.stdout + result.stderr).strip().splitlines()
    counts = {kind: int(count) for count, kind in re.findall(r"(\d+) (passed|failed|skipped|error)", lines[-1])}
    if result.returncode or not counts:
        raise RuntimeError("\n".join(lines[-20:]))
    return {"passed": counts.get("passed", 0), "skipped": counts.get("skipped", 0), "last_line": lines[-1]}


def compare_losses(setting: Setting) -> dict[str, Any]:
    """Returns the losses of both before and after updates, and the largest relative difference in each precision.

    Raises:
        ValueError: They differ by more than rounding.
    """
    outcome: dict[str, Any] = {}
    expected: list[float] = []
    for precision, tolerance in TOLERANCE.items():
        batches = setting.batches(CHECK_BATCHES + CHECK_UPDATES, min(64, setting.pairs))
        for name, engine in setting.engines(precision, dropout=0.0).items():
            job = setting.job(precision, dropout=0.0)
            losses = check(engine, batches, job)["losses"]
            expected = expected or losses
            off = max(abs(loss - other) / other for loss, other in zip(losses, expected, strict=True))
            outcome[f"{name}, {precision}"] = {"losses": losses, "largest_relative_difference": off}
            if off > tolerance:
                raise ValueError(f"{name} in {precision} differs from ours in float32 by {off:.1e}: {losses}")
    return outcome | {"largest": max(figures["largest_relative_difference"] for figures in outcome.values())}


def time_updates(setting: Setting, compiled: bool) -> dict[str, Any]:
    """Returns the speed of updates of both engines in turn."""
    engines = setting.engines("bfloat16", compiled=compiled)
    batches = setting.batches(setting.n_batches)
    turns = {name: iter(batches) for name in engines}

    def update(name: str) -> None:
        engines[name].step(next(turns[name]))

    for engine in engines.values():
        engine.model.train()
    runs = {name: partial(update, name) for name in engines}
    seconds = in_turn(runs, setting.device, setting.updates, WARM_UPDATES)
    tokens = batches[0].scored
    median = {name: statistics.median(taken) for name, taken in seconds.items()}
    rates = rates_of(setting.device)
    return {
        "target_tokens_per_second": spread([tokens / taken for taken in seconds["ours"]]),
        "theirs": spread([tokens / taken for taken in seconds["transformers"]]) if "transformers" in seconds else None,
        "ours_over_transformers": ratios(seconds, "ours", "transformers"),
        "share_of_peak": rates["peak"] and setting.flops / median["ours"] / rates["peak"],
        "share_of_product": rates["product"] and setting.flops / median["ours"] / rates["product"],
        "flops_of_a_step": setting.flops, "rates": rates, "step_seconds": seconds, "target_tokens": tokens,
    }  # fmt: skip


def rates_of(device: torch.device) -> dict[str, float | None]:
    """Returns the rate of products by the data sheet, and that of large ones as measured; None on a CPU."""
    if device.type != "cuda":
        return {"peak": None, "product": None}
    return {"peak": peak_rate(torch.cuda.get_device_name()), "product": largest_rate(torch.bfloat16, device)}


def profile_update(setting: Setting, compiled: bool) -> dict[str, Any]:
    """Returns torch's profile of one update of each engine: the table, kernel launches and waits for the GPU."""
    outcome: dict[str, Any] = {}
    is_gpu = setting.device.type == "cuda"
    for name, engine in setting.engines("bfloat16", compiled=compiled).items():
        engine.model.train()
        *warm, last = setting.batches(WARM_UPDATES + 1)
        for batch in warm:
            engine.step(batch)
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_gpu else [])]
        with profile(activities=activities) as recorded:
            engine.step(last)
            if is_gpu:
                torch.cuda.synchronize()
        events = recorded.key_averages()
        order = "self_device_time_total" if is_gpu else "self_cpu_time_total"
        counts = {event.key: event.count for event in events}
        outcome[name] = {
            "table": events.table(sort_by=order, row_limit=PROFILE_ROWS, max_name_column_width=60).splitlines(),
            "launches": sum(count for key, count in counts.items() if "LaunchKernel" in key),
            "waits": {key: counts[key] for key in WAITS if key in counts},
            "device_milliseconds": sum(event.self_device_time_total for event in events) / 1e3,
        }
    ours, theirs = outcome["ours"], outcome.get("transformers", {})
    return outcome | {
        "our_launches": ours["launches"], "their_launches": theirs.get("launches"),
        "our_milliseconds": ours["device_milliseconds"], "their_milliseconds": theirs.get("device_milliseconds"),
        "our_waits": sum(ours["waits"].values()),
    }  # fmt: skip


SPEED = (
    "{target_tokens_per_second:,.0f} target tokens/s, {ours_over_transformers:.2f} x transformers, "
    "{share_of_peak:.1%} of peak"
)
PROFILE = (
    "{our_milliseconds:.1f} ms of kernels ({their_milliseconds:.1f} with transformers), {our_launches} launches "
    "({their_launches}), {our_waits} waits"
)


def main() -> None:
    """Measures what is not there yet."""
    arguments = read_arguments(__doc__)
    ledger = Ledger("gpu-1", arguments)
    ledger.measure("tests", 120, partial(run_tests, arguments.in_small), "{last_line}")
    for name in ("base",) if arguments.in_small else ("base", "big"):
        setting = Setting(name, arguments)
        losses = partial(compare_losses, setting)
        ledger.measure(f"{name}, losses", 30, losses, "losses agree, largest relative difference {largest:.1e}")
        for kind, compiled in (("eager", False), ("compiled", True)):
            if compiled and arguments.in_small:
                continue
            seconds = 90 if compiled else 20
            ledger.measure(f"{name}, {kind}", seconds, partial(time_updates, setting, compiled), SPEED)
            ledger.measure(f"{name}, {kind}, profile", seconds, partial(profile_update, setting, compiled), PROFILE)
    ledger.finish()


if __name__ == "__main__":
    main()
