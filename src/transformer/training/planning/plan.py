"""What a run will cost, found out and said before its first step."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from transformer.data.batches import plan_epoch, split_micro
from transformer.interfaces import Dataset, SupportsFlopCount
from transformer.training.config import TrainingConfig
from transformer.training.distributed.data_parallel import unwrap
from transformer.training.planning.memory import (
    MemoryEstimate,
    check_batch_fits,
    fitting_tokens,
    measure_peak_memory,
    predict_memory,
    try_batch,
    worst_batches,
)
from transformer.training.step import TrainingState

OTHERS: Final = 8
"""Batches of other sizes that are gone through before the largest once more: what is freed leaves holes, in which what
comes next does not always find room."""
SAMPLE: Final = 256
"""Batches over which the mean of operations is taken."""
AUTO_FIRST, AUTO_MOST, AUTO_SHARE = 1024, 25_000, 0.5
"""For "auto": the budget tried first, the most that is chosen (the paper's), and the share of memory it may take."""


def plan_run(
    state: TrainingState,
    dataset: Dataset,
    config: TrainingConfig,
    warm_up_validation: Callable[[], None] = lambda: None,
) -> list[str]:
    """Counts operations, predicts memory, then goes through the largest batches; nothing of the state changes.

    What is predicted from parts of a batch decides whether all of it is tried, and what this took is told.

    Args:
        state: of the run.
        dataset: Training examples.
        config: Training section of the recipe.
        warm_up_validation: does what validation will do and may take more memory than a batch.

    Returns:
        Lines for the reader.

    Raises:
        ConfigError: the largest batch does not fit into memory.
    """
    batches = plan_epoch(dataset.lengths, config.budget, config.seed, 0, dataset.mix)
    lines: list[str] = []
    objective = unwrap(state.objective)
    if isinstance(objective, SupportsFlopCount):
        operations = np.mean([_operations(objective, dataset.lengths[ids]) for ids in batches[:SAMPLE]])
        in_all = operations * (config.max_steps or 0)
        lines.append(f"{operations / 1e9:,.2f} GFLOP a step in matrix products, {in_all / 1e15:,.4f} PFLOP in all")
    largest = _largest(dataset, config)
    plans: list[MemoryEstimate] = []
    for ids in largest:
        if found := predict_memory(state, dataset, ids):
            check_batch_fits(found, config.budget)
            plans.append(found)
    tried = [*largest, *_others(batches, config), *largest]
    trials = [*(partial(try_batch, state, dataset, ids) for ids in tried), warm_up_validation]
    peaks = [measure_peak_memory(state, trial) or 0 for trial in trials]
    if plans:
        of_each = " on each rank" if state.context.size > 1 else ""
        lines.append(f"{replace(plans[0], predicted=max(peaks))}{of_each}")
    return lines


def choose_batch_tokens(state: TrainingState, dataset: Dataset, config: TrainingConfig) -> int:
    """The budget for `batch_tokens="auto"`: as large as half of the available memory allows, at most the paper's."""
    trial = config.model_copy(update={"batch_tokens": AUTO_FIRST})
    plans = [predict_memory(state, dataset, largest) for largest in _largest(dataset, trial)]
    fitting = min((fitting_tokens(memory, AUTO_FIRST, AUTO_SHARE) for memory in plans if memory), default=0)
    return max(AUTO_FIRST, min(AUTO_MOST, fitting))


def _largest(dataset: Dataset, config: TrainingConfig) -> list[NDArray[np.integer[Any]]]:
    """The micro-batches of an epoch that may need most memory."""
    batches = plan_epoch(dataset.lengths, config.budget, config.seed, 0, dataset.mix)
    return [split_micro(ids, config.accumulation or 1)[0] for ids in worst_batches(dataset, batches)]


def _others(batches: Sequence[NDArray[np.integer[Any]]], config: TrainingConfig) -> list[NDArray[np.integer[Any]]]:
    """Micro-batches from all parts of an epoch."""
    chosen = [batches[place] for place in np.linspace(0, len(batches) - 1, min(OTHERS, len(batches))).astype(int)]
    return [split_micro(ids, config.accumulation or 1)[0] for ids in chosen]


def _operations(objective: SupportsFlopCount, lengths: NDArray[np.int32]) -> int:
    return objective.operations(lengths)
