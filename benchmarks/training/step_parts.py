"""Contribution of each part of the training step: the full step, and the step without one part at a time.

- products by torch: the project's own kernels are disabled;
- whole logits: `F.cross_entropy` on all logits at once, instead of the loss in chunks;
- torch's dropout: `F.dropout` instead of 16 random bits per element;
- fused attention: torch's kernel instead of our own;
- memory returned: freed memory is returned to the system, the default of the C library;
- kernels compiled anew: oneDNN caches 1,024 of them, its default;
- float32: products in float32 instead of bf16;
- layers computed again: `training.activation_checkpointing`, which is off by default.

`tiny` is Transformer-Tiny (V 10,000, dropout 0.3) on 48 shapes of batches of about 4,096 tokens, as an epoch of
Multi30k has them; `base` the paper's base (V 32,000) on 64 pairs of 32 tokens. Ids are random. Each variant runs in
its own process, in turn, once untimed and once timed over all batches. A timing counts only if the loss before the
first update, without dropout, is that of the whole step to 1e-3 (float32: 1e-2).

Usage: python benchmarks/training/step_parts.py --shape tiny [--rounds 3] [--out FILE]
"""

import argparse
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from transformer import build_transformer
from transformer.blocks import causal_mask, padding_mask
from transformer.data.batch import PairBatch
from transformer.data.dataset import pair_batch
from transformer.interfaces import LossSum
from transformer.runtime.allocator import retain_heap
from transformer.runtime.machine import machine
from transformer.training.backend import Backend, enlarge_onednn_cache
from transformer.training.cpu_ops import dispatch
from transformer.training.objectives.translation import TranslationObjective
from transformer.training.optim.adam import make_optimizer
from transformer.training.step import TrainingState, train_step

WHOLE, AGAIN, OFF = "the whole step", "layers computed again", "products by torch"
VARIANTS = (
    WHOLE, OFF, "whole logits", "torch's dropout", "fused attention", "memory returned", "kernels compiled anew",
    "float32", AGAIN,
)  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"d_model": 128, "N": 4, "h": 4, "d_ff": 256, "dropout": 0.3},
    "base": {"d_model": 512, "N": 6, "h": 8, "d_ff": 2048, "dropout": 0.1},
}
VOCABULARY = {"tiny": 10_000, "base": 32_000}
THREADS = 2


class WholeLogits(TranslationObjective):
    """The same loss from torch's function on all logits at once."""

    def forward(self, batch: PairBatch) -> LossSum:
        """The summed loss of a batch."""
        logits = self.model(batch.src, batch.tgt, padding_mask(batch.src), causal_mask(batch.tgt.size(1)))
        loss_sum = F.cross_entropy(
            logits.float().flatten(0, 1), batch.labels.flatten(), ignore_index=0, reduction="sum", label_smoothing=0.1
        )
        return LossSum(loss_sum, batch.scored_tokens, {"nll_sum": loss_sum.detach()})


def batches_of(shape: str) -> list[PairBatch]:
    """Random ids in batches like those of an epoch."""
    generator = np.random.default_rng(1)
    lengths = [(32, 32)] * 4
    if shape == "tiny":
        longest = [length for length in range(8, 32) for _ in range(2)]
        lengths = [(n, n - int(generator.integers(0, 4))) for n in longest]
    batches: list[PairBatch] = []
    for source, target in lengths:
        pairs = 64 if shape == "base" else 4096 // max(source, target)
        sides = [[generator.integers(4, VOCABULARY[shape], n - 1) for _ in range(pairs)] for n in (source, target)]
        batches.append(pair_batch(*([ids.astype(np.int32) for ids in side] for side in sides)))
    return batches


def measure(shape: str, variant: str) -> dict[str, float]:
    """Target tokens a second, peak memory, and the loss before the first update."""
    if variant != "memory returned":
        retain_heap()
    if variant != "kernels compiled anew":
        enlarge_onednn_cache()
    if variant == "torch's dropout":
        dispatch.cpu_dropout, dispatch.cpu_add_dropout = F.dropout, lambda x, y, p: x + F.dropout(y, p)
    if variant == "fused attention":
        for module in ("blocks.attention", "training.cpu_ops.dispatch"):
            importlib.import_module(f"transformer.{module}").MAX_UNFUSED_LENGTH = 0
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    size = VOCABULARY[shape]
    model = build_transformer(size, size, 64, 64, norm_order="post", share_embeddings="all", **SIZES[shape])
    kind = WholeLogits if variant == "whole logits" else TranslationObjective
    objective = kind(model, 0.1, activation_checkpointing=variant == AGAIN)
    backend = Backend(torch.device("cpu"), "float32" if variant == "float32" else "bf16")
    state = TrainingState(objective, make_optimizer(objective), 0, 1, backend)
    batches = batches_of(shape)
    with torch.no_grad(), backend.compute_context():
        first = objective.eval()(batches[0])
    for batch in batches:
        train_step(state, [batch], 1e-3, 1.0)
    started = time.perf_counter()
    for batch in batches:
        train_step(state, [batch], 1e-3, 1.0)
    seconds = time.perf_counter() - started
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {
        "target_tokens_per_second": sum(batch.scored_tokens for batch in batches) / seconds,
        "peak_mib": int(peak.split()[1]) / 1024,
        "loss": first.loss_sum.item() / first.count,
    }


def main() -> None:
    """Measures all variants in turn and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SIZES, default="tiny")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--variant", choices=VARIANTS, help="measure one in this process")
    arguments = parser.parse_args()
    if arguments.variant:
        print(json.dumps(measure(arguments.shape, arguments.variant)))
        return
    rounds: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for _ in range(arguments.rounds):
        for variant, measured in rounds.items():
            call = [sys.executable, __file__, "--shape", arguments.shape, "--variant", variant]
            environment = {**os.environ, **({"TRANSFORMER_KERNELS": "off"} if variant == OFF else {})}
            measured.append(json.loads(subprocess.run(call, env=environment, capture_output=True, check=True).stdout))
            print(variant, measured[-1], file=sys.stderr)
    torch.set_num_threads(THREADS)  # for what is said of the machine
    loss = rounds[WHOLE][0]["loss"]
    result = {
        "command": f"python benchmarks/training/step_parts.py --shape {arguments.shape} --rounds {arguments.rounds}",
        "machine": machine(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "figures": {variant: figures(variant, measured, loss) for variant, measured in rounds.items()},
    }
    print(json.dumps(result, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


def figures(variant: str, measured: list[dict[str, float]], loss: float) -> dict[str, Any]:
    """Medians of a variant, least and most, and whether they count."""
    speeds = [result["target_tokens_per_second"] for result in measured]
    tolerance = 1e-2 if variant == "float32" else 1e-3
    return {
        "target_tokens_per_second": {"median": statistics.median(speeds), "min": min(speeds), "max": max(speeds)},
        "peak_mib": statistics.median(result["peak_mib"] for result in measured),
        "counts": all(abs(result["loss"] - loss) < tolerance for result in measured),
    }


if __name__ == "__main__":
    main()
