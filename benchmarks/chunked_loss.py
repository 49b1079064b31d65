"""What the chunked loss is worth to a training step, and what keeping freed memory with the process would be.

Runs Transformer-Tiny (4+4 layers, d 128, d_ff 256, V 8000, dropout 0.3) on random pairs of Multi30k's mean length, each
variant in processes of its own, in turn, and prints the median target tokens a second of each. The rival of the chunked
loss is `torch.nn.functional.cross_entropy` on whole logits; "kept" tells the C library not to return freed memory.

Usage: python benchmarks/chunked_loss.py [--out FILE]
"""

import argparse
import ctypes
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from transformer import build_transformer
from transformer.blocks import causal_mask, padding_mask
from transformer.data.source import pair_batch
from transformer.protocols import LossSum, PairBatch
from transformer.training.objectives import TranslationObjective
from transformer.training.optimizer import make_optimizer
from transformer.training.settings import TrainingSettings
from transformer.training.step import TrainingState, train_step

VOCABULARY, PAIRS, WARM_STEPS, STEPS, ROUNDS, THREADS = 8000, 270, 4, 12, 3, 2
VARIANTS = ("plain, whole logits", "plain, chunked", "kept, whole logits", "kept, chunked")


M_TRIM_THRESHOLD, M_MMAP_MAX, LARGEST = -1, -4, 2**31 - 1


def keep_freed_memory() -> None:
    """Tells the GNU C library to serve large tensors from memory that the process has already."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, LARGEST)


class WholeLogits(TranslationObjective):
    """The same loss from torch's function on all logits at once."""

    def forward(self, batch: PairBatch) -> LossSum:
        """The summed loss of a batch."""
        logits = self.model(batch.src, batch.tgt, padding_mask(batch.src), causal_mask(batch.tgt.size(1)))
        loss_sum = F.cross_entropy(
            logits.flatten(0, 1), batch.labels.flatten(), ignore_index=0, reduction="sum", label_smoothing=0.1
        )
        return LossSum(loss_sum, batch.scored_tokens, {"nll_sum": loss_sum.detach()})


def measure(variant: str) -> dict[str, float]:
    """Target tokens a second, and the loss of the last step, by which the variants must agree."""
    if variant.startswith("kept"):
        keep_freed_memory()
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    model = build_transformer(
        VOCABULARY, VOCABULARY, 64, 64, d_model=128, N=4, h=4, d_ff=256, dropout=0.3, share_embeddings="all"
    )
    objective: nn.Module = (TranslationObjective if variant.endswith("chunked") else WholeLogits)(model, 0.1)
    state = TrainingState(objective, make_optimizer(objective, TrainingSettings()), 0, 1)
    generator = np.random.default_rng(1)
    batches = [
        pair_batch(*([generator.integers(4, VOCABULARY, 14).astype(np.int32) for _ in range(PAIRS)] for _ in range(2)))
        for _ in range(WARM_STEPS + STEPS)
    ]
    for batch in batches[:WARM_STEPS]:
        train_step(state, [batch], 1e-3, 1.0)
    started = time.perf_counter()
    loss = [train_step(state, [batch], 1e-3, 1.0).loss for batch in batches[WARM_STEPS:]][-1]
    tokens = sum(batch.scored_tokens for batch in batches[WARM_STEPS:])
    return {"tokens_per_second": tokens / (time.perf_counter() - started), "loss": loss}


def main() -> None:
    """Measures all variants in turn and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--variant", choices=VARIANTS, help="measure one in this process")
    arguments = parser.parse_args()
    if arguments.variant:
        print(json.dumps(measure(arguments.variant)))
        return
    rounds: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for _ in range(ROUNDS):
        for variant in VARIANTS:
            call = [sys.executable, __file__, "--variant", variant]
            rounds[variant].append(json.loads(subprocess.run(call, capture_output=True, check=True).stdout))
    losses = [result["loss"] for results in rounds.values() for result in results]
    assert max(losses) - min(losses) < 1e-3, "the variants do not compute the same loss"
    speeds = {variant: [result["tokens_per_second"] for result in results] for variant, results in rounds.items()}
    figures = {
        variant: {"median": statistics.median(values), "min": min(values), "max": max(values)}
        for variant, values in speeds.items()
    }
    result = {
        "command": "python benchmarks/chunked_loss.py",
        "unit": "target tokens a second",
        "rounds": ROUNDS,
        "threads": THREADS,
        "machine": f"{cpu_name()}, {platform.system()}",
        "torch": torch.__version__,
        "figures": figures,
    }
    print(json.dumps(result, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


def cpu_name() -> str:
    """The processor's name where the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
