"""Costs of a run, measured before its first step."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from transformer.data.token_batching import batch_by_tokens, split_micro
from transformer.interfaces import Dataset, SupportsFlopCount
from transformer.training.config import TrainingSettings
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

N_COUNTED_BATCHES: Final = 256
"""Batches over which the number of floating-point operations is averaged."""
N_TIMED_BATCHES: Final = 5
"""Batches of which the median time counts, without the first one, which may be slow."""
MAX_TIMING_SECONDS: Final = 10
"""Time of the batches that count after which no further one is timed."""
AUTO_FIRST, AUTO_MAX, AUTO_SHARE = 1024, 25_000, 0.5
"""For "auto": the first budget that is tried, the largest that is chosen (the paper's), and its share of memory."""


def plan_run(
    state: TrainingState,
    dataset: Dataset,
    settings: TrainingSettings,
    warm_up_validation: Callable[[], None] = lambda: None,
) -> list[tuple[str, str]]:
    """Counts floating-point operations, predicts memory, and tries a few batches; the state is not changed.

    The largest batches are tried only if the prediction from parts of them fits into memory. Their trials give the
    reported memory, and those of the first batches the reported time.

    Args:
        state: Training state of the run.
        dataset: Training examples.
        settings: Settings of the training.
        warm_up_validation: Function that runs the part of validation with the largest memory.

    Returns:
        Titles and texts to print.

    Raises:
        ConfigError: The largest batch does not fit into memory.
    """
    batches = batch_by_tokens(dataset.lengths, settings.batch_tokens, settings.seed, 0, dataset.mix)
    lines: list[tuple[str, str]] = []
    objective = unwrap(state.objective)
    if isinstance(objective, SupportsFlopCount):
        flops = np.mean([objective.flops(dataset.lengths[ids]) for ids in batches[:N_COUNTED_BATCHES]])
        total = flops * settings.max_steps
        work = f"{flops / 1e9:,.2f} GFLOP a step in matrix products, {total / 1e15:,.4f} PFLOP in all"
        lines.append(("work", work))
    largest = _largest_micro_batches(dataset, settings.batch_tokens, settings.accumulation, settings.seed)
    estimates: list[MemoryEstimate] = []
    for ids in largest:
        if estimate := predict_memory(state, dataset, ids):
            check_batch_fits(estimate, settings.batch_tokens)
            estimates.append(estimate)
    trials = [*(partial(try_batch, state, dataset, ids) for ids in largest), warm_up_validation]
    peaks = [measure_peak_memory(state, trial) or 0 for trial in trials]
    seconds = _seconds_per_step(state, dataset, settings, batches)
    whole = describe_seconds(seconds * (settings.max_steps - state.step))
    lines.append(("time", f"about {whole} at {seconds:.2g} s a step, without validations"))
    if estimates:
        scope = " on each rank" if state.context.size > 1 else ""
        lines.append(("memory", f"{replace(estimates[0], predicted=max(peaks))}{scope}"))
    return lines


def _seconds_per_step(
    state: TrainingState, dataset: Dataset, settings: TrainingSettings, batches: Sequence[NDArray[np.uint32]]
) -> float:
    """Measures the forward and backward pass of a few micro-batches; the slowest rank decides."""
    seconds: list[float] = []
    for ids in batches[:N_TIMED_BATCHES]:
        started = perf_counter()
        try_batch(state, dataset, split_micro(ids, settings.accumulation)[0])
        if state.backend.device.type == "cuda":
            torch.cuda.synchronize(state.backend.device)
        seconds.append(perf_counter() - started)
        if state.context.all_reduce_max(round(sum(seconds[1:]))) >= MAX_TIMING_SECONDS:
            break
    slowest = state.context.all_reduce_max(round(1e6 * statistics.median(seconds[1:] or seconds))) / 1e6
    return slowest * state.context.max_items_per_rank(settings.accumulation)


def describe_seconds(seconds: float) -> str:
    """Returns a duration in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:,.1f} hours"


def choose_batch_tokens(state: TrainingState, dataset: Dataset, accumulation: int) -> int:
    """Returns the budget for `batch_tokens="auto"`: what fits into half of the memory, at most the paper's."""
    largest = _largest_micro_batches(dataset, AUTO_FIRST, accumulation, state.seed)
    estimates = [predict_memory(state, dataset, ids) for ids in largest]
    fitting = min((fitting_tokens(estimate, AUTO_FIRST, AUTO_SHARE) for estimate in estimates if estimate), default=0)
    return max(AUTO_FIRST, min(AUTO_MAX, fitting))


def _largest_micro_batches(
    dataset: Dataset, batch_tokens: int, accumulation: int, seed: int
) -> list[NDArray[np.integer[Any]]]:
    """Returns the micro-batches of an epoch that may need most memory."""
    batches = batch_by_tokens(dataset.lengths, batch_tokens, seed, 0, dataset.mix)
    return [split_micro(ids, accumulation)[0] for ids in worst_batches(dataset, batches)]
