"""Prediction of the memory that a batch needs, before the first step."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from transformer.errors import ConfigError
from transformer.interfaces import Dataset
from transformer.training.step import TrainingState

Examples = NDArray[np.integer[Any]]
TRIAL_TOKENS: Final = 1024
"""Tokens of the first trial with a part of the worst batch. Each further trial has twice the rows, up to half of the
batch. The peaks of two trials predict the next by linear extrapolation, and no trial runs that would not fit."""
PARAMETER_BYTES: Final = 4
ADAM_BYTES: Final = 8
"""Bytes of the two float32 moments of a parameter."""
GIB: Final = 2**30
CGROUP: Final = Path("/sys/fs/cgroup")
MEMINFO: Final = Path("/proc/meminfo")
PROCESS_CGROUPS: Final = Path("/proc/self/cgroup")
CGROUP_FILES: Final = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Names of the limit, the usage and the reclaimable file cache of control groups, version 2 and version 1."""


@dataclass(frozen=True)
class MemoryEstimate:
    """The memory that the worst batch needs.

    Attributes:
        rows: Number of examples in the batch.
        predicted: Predicted peak of the process (or of the GPU's memory) in bytes.
        available: Bytes that the process may use in total, limited by its container and the machine.
        bytes_per_row: Bytes that each further example adds.
    """

    rows: int
    predicted: int
    available: int
    bytes_per_row: float

    def __str__(self) -> str:
        """Returns the text that is printed before the first step."""
        share = f"about {self.predicted / GIB:.2f} GiB of {self.available / GIB:.1f} GiB"
        return f"{share} for the largest batch or validation"


def worst_batches(dataset: Dataset, batches: Sequence[Examples]) -> list[Examples]:
    """Returns the batches that may need most memory, without duplicates.

    One has the most padded tokens on all sides together, with which most of the memory grows. The other has the most
    pairs of positions, with which attention weights grow if they are materialized.
    """
    longest = [dataset.lengths[ids].max(axis=0).astype(np.int64) for ids in batches]
    sizes = [
        (len(ids) * int(length.sum()), len(ids) * int(length.max()) ** 2)
        for ids, length in zip(batches, longest, strict=True)
    ]
    largest = dict.fromkeys(max(range(len(batches)), key=lambda index: sizes[index][by]) for by in (0, 1))
    return [batches[index] for index in largest]


def predict_memory(state: TrainingState, dataset: Dataset, ids: Examples) -> MemoryEstimate | None:
    """Predicts the peak memory of a batch from trials with parts of it; None if the system cannot report memory.

    For one or two rows, the first is tried and counted for each. All ranks try the same rows, and the one with the
    least free memory decides. Parameters, optimizer, gradients and random state are unchanged.
    """
    context, device = state.context, state.backend.device
    meter, available = _peak_meter(device), available_bytes(device)
    if context.all_reduce_max(meter is None or available is None) or meter is None or available is None:
        return None
    longest = ids[np.argsort(-dataset.lengths[ids].sum(axis=1), kind="stable")]
    resident = meter(lambda: None)
    rows, peak, bytes_per_row = 0, 0, 0.0
    for n_rows in _doubling(max(1, TRIAL_TOKENS // int(dataset.lengths[longest[0]].max())), len(ids) // 2):
        before, rows = (rows, peak), n_rows
        peak = meter(lambda n_rows=n_rows: try_batch(state, dataset, longest[:n_rows]))
        bytes_per_row = max(0.0, (peak - before[1]) / (rows - before[0])) if before[0] else 0.0
        if context.all_reduce_max(peak + bytes_per_row * rows > available):
            break
    if rows == 1:
        bytes_per_row = float(max(0, peak - resident))
    predicted = context.all_reduce_max(round(peak + bytes_per_row * (len(ids) - rows)))
    return MemoryEstimate(
        len(ids), predicted, -context.all_reduce_max(-available), float(context.all_reduce_max(round(bytes_per_row)))
    )


def measure_peak_memory(state: TrainingState, run: Callable[[], None]) -> int | None:
    """Runs a function and returns the largest peak memory of a rank in bytes; None if the system cannot report it."""
    meter = _peak_meter(state.backend.device)
    if state.context.all_reduce_max(meter is None) or meter is None:
        return run()
    return state.context.all_reduce_max(meter(run))


def _doubling(first: int, last: int) -> list[int]:
    """Returns sizes that double up to `last`; at least two if `last` is more than 1."""
    sizes = [max(1, last)]
    while sizes[0] > 1 and (sizes[0] > first or len(sizes) < 2):
        sizes.insert(0, sizes[0] // 2)
    return sizes


def check_model_fits(parameters: int, buffer_bytes: int, device: torch.device, ranks: int = 1) -> None:
    """Checks that a model and its training state fit into memory, before they are allocated.

    Args:
        parameters: Number of parameters.
        buffer_bytes: Number of bytes of all buffers.
        device: Device that the model will be trained on.
        ranks: Number of ranks over which gradients and moments are sharded.

    Raises:
        ConfigError: Parameters, gradients and Adam's moments do not fit.
    """
    need = buffer_bytes + parameters * (PARAMETER_BYTES + (PARAMETER_BYTES + ADAM_BYTES) / ranks)
    available = available_bytes(device)
    if available is not None and need > available:
        raise ConfigError(
            f"a model of {parameters:,} parameters needs {need / GIB:,.1f} GiB with gradients and Adam's moments, but "
            f"{available / GIB:,.1f} GiB are available; choose a smaller model.preset, or reduce "
            "d_model, d_ff, N or src_seq_len"
        )


def check_batch_fits(estimate: MemoryEstimate, batch_tokens: int) -> None:
    """Checks that the predicted memory of the largest batch is available.

    Raises:
        ConfigError: The largest batch does not fit; the message gives a budget that does.
    """
    if estimate.predicted <= estimate.available:
        return
    fitting = fitting_tokens(estimate, batch_tokens)
    advice = f"set training.batch_tokens={fitting}" if fitting else "choose a smaller model"
    raise ConfigError(
        f"training.batch_tokens={batch_tokens} needs about {estimate.predicted / GIB:.2f} GiB, but "
        f"{estimate.available / GIB:.2f} GiB are available; {advice}, or split batches with training.accumulation, "
        "or set training.activation_checkpointing=true"
    )


def fitting_tokens(estimate: MemoryEstimate, batch_tokens: int, share: float = 0.9) -> int:
    """Returns the largest budget, a multiple of 256, that fits into a share of the available memory; 0 if none does."""
    fixed = estimate.predicted - estimate.bytes_per_row * estimate.rows
    rows = (share * estimate.available - fixed) / max(estimate.bytes_per_row, 1.0)
    return max(0, math.floor(rows / estimate.rows * batch_tokens / 256) * 256)


def try_batch(state: TrainingState, dataset: Dataset, ids: Examples) -> None:
    """Runs the forward and backward pass of a batch, then drops the gradient and restores the random state."""
    generator = torch.get_rng_state()
    state.objective.train()
    with state.backend.compute_context(state.backend.quantized_from):  # rounded products need more memory
        result = state.objective(dataset.fetch(ids).to(state.backend.device))
    result.loss_sum.backward()
    state.optimizer.zero_grad()
    torch.set_rng_state(generator)


def available_bytes(device: torch.device) -> int | None:
    """Returns the bytes that this process may use in total: its current memory and its share of free memory.

    Free memory is limited by the container and the machine, and is shared by the ranks on one machine. None if the
    system cannot report it.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device)
    if not MEMINFO.exists():
        return None
    free = [_field(MEMINFO, "MemAvailable"), *_free_cgroup_bytes()]
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min(free) // ranks + _field(Path("/proc/self/status"), "VmRSS")


def _free_cgroup_bytes() -> Iterator[int]:
    """Yields the free bytes of each control group that contains this process and has a limit."""
    for line in PROCESS_CGROUPS.read_text().splitlines() if PROCESS_CGROUPS.exists() else ():
        _, controllers, name = line.split(":", 2)
        names, root = CGROUP_FILES.get(controllers), CGROUP / controllers
        inner = root / name.strip("/")
        for folder in [inner, *inner.parents] if names else ():
            limit, used, cached = names or ("", "", "")
            if folder.is_relative_to(root) and (folder / used).exists() and (folder / limit).exists():
                limit_text = (folder / limit).read_text().strip()
                if limit_text != "max":
                    yield (
                        int(limit_text) - int((folder / used).read_text()) + _statistic(folder / "memory.stat", cached)
                    )


def _statistic(path: Path, name: str) -> int:
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), 0)


def _peak_meter(device: torch.device) -> Callable[[Callable[[], None]], int] | None:
    """Returns a function that measures the peak memory of another in bytes; None if the system cannot report it."""
    if device.type == "cuda":

        def cuda_peak(run: Callable[[], None]) -> int:
            torch.cuda.reset_peak_memory_stats(device)
            run()
            return torch.cuda.max_memory_allocated(device)

        return cuda_peak
    clear = Path("/proc/self/clear_refs")

    def process_peak(run: Callable[[], None]) -> int:
        clear.write_text("5")  # resets the peak to the current size
        run()
        return _field(Path("/proc/self/status"), "VmHWM")

    return process_peak if clear.exists() else None


def _field(path: Path, name: str) -> int:
    """Reads a field of a /proc file, converted from KiB to bytes."""
    line = next(line for line in path.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
