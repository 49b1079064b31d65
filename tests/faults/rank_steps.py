"""Updates and collective operations on ranks of torchrun; a test runs the same code in a single process."""

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from transformer.data.batch import PairBatch
from transformer.data.dataset import pair_batch
from transformer.interfaces import ExampleGroup, LossSum
from transformer.runtime.allocator import retain_heap
from transformer.training.config import TrainingConfig, TrainingSettings
from transformer.training.distributed.data_parallel import distribute_model, gather_on_main
from transformer.training.distributed.process_group import DistributedContext, join_process_group
from transformer.training.interruption import Interruption
from transformer.training.monitoring.progress import Progress
from transformer.training.objectives.translation import TranslationObjective
from transformer.training.optim.adam import make_optimizer
from transformer.training.optim.state_dict import optimizer_tensors, restore_optimizer
from transformer.training.planning.plan import plan_run
from transformer.training.step import TrainingState
from transformer.training.update import BatchPlan, SkippedBatch, prepare_batch, train_on_batch
from transformer.transformer import build_transformer

STRATEGIES = ("ddp", "fsdp")
LENGTH = {"max_steps": 3, "warmup_steps": 1, "decay_steps": 3, "validate_every": 1, "save_every": 1}
ACCUMULATIONS = (1, 2, 3)
"""Numbers of micro-batches: for two ranks, one and none, one each, and two and one."""


AGAIN = 2
"""Number of micro-batches with which ranks use activation checkpointing, but the single process does not."""


class Pairs:
    """Eleven random pairs of very different lengths; the last has an empty target."""

    def __init__(self) -> None:
        draw = np.random.default_rng(5)
        self.sides = [[draw.integers(4, 29, draw.integers(1, 9)).astype(np.int32) for _ in range(11)] for _ in (0, 1)]
        self.lengths = np.array([[len(row) + 1 for row in side] for side in self.sides], np.int32).T
        self.mix = (ExampleGroup(11),)

    def fetch(self, ids: np.ndarray) -> PairBatch:
        """Returns the padded pairs."""
        return pair_batch(*[[side[i] for i in ids] for side in self.sides])


class Alike:
    """A dataset of 400 pairs of equal length."""

    lengths = np.full((400, 2), 29, np.int32)
    mix = (ExampleGroup(400),)

    def fetch(self, ids: np.ndarray) -> PairBatch:
        """Returns the pairs."""
        rows = [np.full(28, 5, np.int32)] * len(ids)
        return pair_batch(rows, rows)


class Spoiled(TranslationObjective):
    """An objective whose loss is NaN while `spoiled` is set."""

    spoiled = False

    def forward(self, batch: PairBatch) -> LossSum:
        """Returns the loss, or NaN."""
        result = super().forward(batch)
        factor = math.nan if self.spoiled else 1.0
        return LossSum(result.loss_sum * factor, result.count, result.metrics)


def take_steps(
    context: DistributedContext, accumulation: int, share: str = "all"
) -> tuple[dict[str, torch.Tensor], list[Any]]:
    """Makes two updates with SGD, and between them one whose loss is only NaN on the last rank.

    Returns the full weights on rank 0, and the results that every rank received.
    """
    torch.manual_seed(5)
    sizes = {"d_model": 8, "N": 2, "h": 2, "d_ff": 12, "dropout": 0.3, "share_embeddings": share}
    model = build_transformer(29, 29, 12, 12, **sizes)
    objective = Spoiled(model, 0.1, activation_checkpointing=context.size > 1 and accumulation == AGAIN)
    distributed = distribute_model(objective, model, context)
    optimizer = torch.optim.SGD(distributed.model.parameters())
    state = TrainingState(distributed.objective, optimizer, step=0, seed=1, context=context)
    settings = TrainingSettings.from_config(
        TrainingConfig(**LENGTH, accumulation=accumulation, skip_nonfinite=1, clip_norm=0.5)
    )
    progress = Progress()
    results: list[Any] = []
    for ids in (np.arange(7), np.arange(7), np.arange(7, 11)):
        spoiled = len(results) == 2
        objective.spoiled = spoiled and (context.rank == min(context.size, accumulation) - 1)
        batch = prepare_batch(Pairs(), context, accumulation, BatchPlan(ids, 0, progress.position))
        outcome = train_on_batch(state, batch, settings, 0.7, progress)
        assert isinstance(outcome, SkippedBatch) == spoiled
        results.append(
            outcome.reason if isinstance(outcome, SkippedBatch) else [outcome.loss, outcome.nll, outcome.count]
        )
        results.append(None if isinstance(outcome, SkippedBatch) else outcome.gradient_norm)
    weights = gather_on_main(dict(distributed.model.named_parameters()), context)
    distributed.gather()
    if context.is_main:
        assert distributed.whole.projection_layer.proj.weight is distributed.whole.tgt_embed.embedding.weight
        assert all(torch.equal(whole, distributed.whole.get_parameter(name)) for name, whole in weights.items())
    return {name: tensor.detach() for name, tensor in weights.items()}, results


def keeps_memory(context: DistributedContext) -> bool:
    """Whether Adam's state is unchanged after it was sharded and gathered, and every rank holds only its shard."""
    torch.manual_seed(5)
    model = build_transformer(29, 29, 12, 12, d_model=8, N=1, h=2, d_ff=12, share_embeddings="all")
    tensors = {
        f"{key}/{name}": torch.rand_like(p) for name, p in model.named_parameters() for key in ("exp_avg", "exp_avg_sq")
    }
    tensors |= {f"step/{name}": torch.tensor(7.0) for name, _ in model.named_parameters()}
    distributed = distribute_model(TranslationObjective(model, 0.1), model, context)
    optimizer = make_optimizer(distributed.model)
    restore_optimizer(distributed.model, optimizer, tensors)
    shard_bytes = sum(state["exp_avg"].untyped_storage().nbytes() for state in map(local, optimizer.state.values()))
    gathered = gather_on_main(optimizer_tensors(distributed.model, optimizer), context)
    total_bytes = sum(tensor.nbytes for name, tensor in tensors.items() if name.startswith("exp_avg/"))
    assert context.strategy != "fsdp" or context.size == 1 or shard_bytes < 0.7 * total_bytes, (
        shard_bytes,
        total_bytes,
    )
    return not context.is_main or (
        gathered.keys() == tensors.keys() and all(torch.equal(gathered[n], tensors[n]) for n in tensors)
    )


def plans(context: DistributedContext) -> list[float]:
    """Returns the predicted and the actual peak memory in GiB, and the number of lines of the plan."""
    retain_heap()
    torch.manual_seed(5)
    model = build_transformer(29, 29, 40, 40, d_model=128, N=3, h=4, d_ff=512, share_embeddings="all")
    distributed = distribute_model(TranslationObjective(model, 0.1), model, context)
    optimizer = make_optimizer(distributed.model)
    state = TrainingState(distributed.objective, optimizer, step=0, seed=1, context=context)
    config = TrainingConfig(**LENGTH, batch_tokens=29 * 400, accumulation=2)
    dataset, settings = Alike(), TrainingSettings.from_config(config)
    lines = plan_run(state, dataset, settings)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    for _ in range(3):
        batch = prepare_batch(dataset, context, 2, BatchPlan(np.arange(400), 0, Progress().position))
        train_on_batch(state, batch, settings, 1e-3, Progress())
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    predicted = float(
        re.findall(r"about (\S+) GiB of \S+ GiB for the largest batch or validation on each rank", lines[-1][1])[0]
    )
    return [predicted, int(peak.split()[1]) / 2**20, len(lines)]


def local(state: dict[str, Any]) -> dict[str, Any]:
    return {key: tensor.to_local().clone() if hasattr(tensor, "to_local") else tensor for key, tensor in state.items()}


def talk(context: DistributedContext) -> list[Any]:
    """Returns the results of collective operations."""
    interruption = Interruption(15 if context.rank == 1 else None)
    text = "Zeichen: \u00e4\u20ac, NaN" * (1 + 3 * context.rank)
    return [
        context.all_reduce_sum(context.rank, 0.5), context.all_reduce_max(7 - context.rank),
        context.broadcast({"text": text, "empty": []}),
        context.broadcast(None), context.should_stop(interruption), interruption.signal_number,
        context.should_stop(Interruption()),
    ]  # fmt: skip


def main(folder: Path) -> None:
    facts: dict[str, Any] = {}
    with join_process_group(TrainingConfig(rank_seconds=300)) as joined:
        facts["size"], facts["talk"] = joined.size, talk(joined)
        with joined.main_first():
            (folder / f"first-{joined.rank}").touch()
            facts["n_files_seen"] = len(list(folder.glob("first-*")))
        for strategy in STRATEGIES:
            context = replace(joined, strategy=strategy)
            facts[f"{strategy} memory"] = keeps_memory(context)
            facts[f"{strategy} plan"] = plans(context)
            for accumulation in ACCUMULATIONS:
                weights, facts[f"{strategy} {accumulation}"] = take_steps(context, accumulation)
                if context.is_main:
                    save_file(weights, folder / f"{strategy}-{accumulation}.safetensors")
        (folder / f"rank-{joined.rank}.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
