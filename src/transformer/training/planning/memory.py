"""How much memory a batch needs, found out before the first step."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from transformer.errors import ConfigError
from transformer.interfaces import Dataset
from transformer.training.step import TrainingState

Examples = NDArray[np.integer[Any]]
TRIAL_TOKENS: Final = 1024
"""Size of the first part of the worst batch that is tried. Each further part has twice the rows, up to half of the
batch: two peaks give the line that tells the next, and nothing is tried that this line says will not fit."""
PARAMETER_BYTES: Final = 4
ADAM_BYTES: Final = 8
"""The two float32 moments of a parameter."""
GIB: Final = 2**30
CGROUP: Final = Path("/sys/fs/cgroup")
MEMINFO: Final = Path("/proc/meminfo")
OWN_GROUPS: Final = Path("/proc/self/cgroup")
GROUP_FILES: Final = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Of control groups, version 2 and 1: the limit, what is used, and of that the cached files that would go first."""


@dataclass(frozen=True)
class MemoryEstimate:
    """What the worst batch needs.

    Attributes:
        rows: examples of it.
        predicted: peak of the process (or of the GPU's memory) in bytes, from the smaller trials.
        available: bytes that the process may have in all, of its container or the machine.
        bytes_per_row: what one more example adds.
    """

    rows: int
    predicted: int
    available: int
    bytes_per_row: float

    def __str__(self) -> str:
        """What is said before the first step."""
        said = f"about {self.predicted / GIB:.2f} GiB of {self.available / GIB:.1f} GiB"
        return f"memory: {said} for the largest batch or validation"


def worst_batches(dataset: Dataset, batches: Sequence[Examples]) -> list[Examples]:
    """The batches that may need most memory, each once.

    They are the one with the most padded tokens on all sides together, which most of a model's memory goes with, and
    the one with the most pairs of positions, which attention's weights go with where they are written down.
    """
    longest = [dataset.lengths[ids].max(axis=0).astype(np.int64) for ids in batches]
    sizes = [
        (len(ids) * int(length.sum()), len(ids) * int(length.max()) ** 2)
        for ids, length in zip(batches, longest, strict=True)
    ]
    chosen = dict.fromkeys(max(range(len(batches)), key=lambda index: sizes[index][by]) for by in (0, 1))
    return [batches[index] for index in chosen]


def predict_memory(state: TrainingState, dataset: Dataset, ids: Examples) -> MemoryEstimate | None:
    """Tries small parts of a batch and predicts the peak of the whole; None where the system does not tell.

    Of one or two rows, the first is tried and taken for each. Ranks try the same, and the one with the least room
    counts.
    Nothing of the state changes but memory: parameters, optimizer, gradients and random numbers are as before.
    """
    context, device = state.context, state.backend.device
    meter, available = _peak_meter(device), available_bytes(device)
    if context.all_reduce_max(meter is None or available is None) or meter is None or available is None:
        return None
    longest = ids[np.argsort(-dataset.lengths[ids].sum(axis=1), kind="stable")]
    resident = meter(lambda: None)
    rows, peak, bytes_per_row = 0, 0, 0.0
    for part in _doubling(max(1, TRIAL_TOKENS // int(dataset.lengths[longest[0]].max())), len(ids) // 2):
        before, rows = (rows, peak), part
        peak = meter(lambda part=part: try_batch(state, dataset, longest[:part]))
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
    """Runs something and returns the peak of memory in bytes, of the rank with most; None where none is told."""
    meter = _peak_meter(state.backend.device)
    if state.context.all_reduce_max(meter is None) or meter is None:
        return run()
    return state.context.all_reduce_max(meter(run))


def _doubling(first: int, last: int) -> list[int]:
    """Growing sizes up to `last`, each twice the one before; at least two where `last` is more than 1."""
    sizes = [max(1, last)]
    while sizes[0] > 1 and (sizes[0] > first or len(sizes) < 2):
        sizes.insert(0, sizes[0] // 2)
    return sizes


def check_model_fits(model: nn.Module, device: torch.device, ranks: int = 1) -> None:
    """Compares what a model and its training state alone take with what there is, before any of it is allocated.

    Args:
        model: on the meta device, which has shapes and no values.
        device: where it will be.
        ranks: over how many gradients and moments are spread.

    Raises:
        ConfigError: parameters, gradients and Adam's moments do not fit.
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    need = buffers + parameters * (PARAMETER_BYTES + (PARAMETER_BYTES + ADAM_BYTES) / ranks)
    available = available_bytes(device)
    if available is not None and need > available:
        raise ConfigError(
            f"a model of {parameters:,} parameters needs {need / GIB:,.1f} GiB with gradients and Adam's moments, but "
            f"{available / GIB:,.1f} GiB are available; choose a smaller model.preset, or less of "
            "d_model, d_ff, N or src_seq_len"
        )


def check_batch_fits(plan: MemoryEstimate, batch_tokens: int) -> None:
    """Compares the need with what there is.

    Raises:
        ConfigError: the largest batch does not fit; the message gives a budget that does.
    """
    if plan.predicted <= plan.available:
        return
    fitting = fitting_tokens(plan, batch_tokens)
    advice = f"set training.batch_tokens={fitting}" if fitting else "take a smaller model"
    raise ConfigError(
        f"training.batch_tokens={batch_tokens} needs about {plan.predicted / GIB:.2f} GiB, but "
        f"{plan.available / GIB:.2f} GiB are available; {advice}, or cut batches by training.accumulation, or set "
        "training.activation_checkpointing=true"
    )


def fitting_tokens(plan: MemoryEstimate, batch_tokens: int, share: float = 0.9) -> int:
    """The largest budget that takes at most a share of the available memory, in steps of 256; 0 if there is none."""
    fixed = plan.predicted - plan.bytes_per_row * plan.rows
    rows = (share * plan.available - fixed) / max(plan.bytes_per_row, 1.0)
    return max(0, math.floor(rows / plan.rows * batch_tokens / 256) * 256)


def try_batch(state: TrainingState, dataset: Dataset, ids: Examples) -> None:
    """Goes forward and back through a batch and forgets it."""
    generator = torch.get_rng_state()
    state.objective.train()
    with state.backend.compute_context():
        result = state.objective(dataset.fetch(ids).to(state.backend.device))
    result.loss_sum.backward()
    state.optimizer.zero_grad()
    torch.set_rng_state(generator)


def available_bytes(device: torch.device) -> int | None:
    """Memory that this process may hold in all: what it holds, and its share of what is free.

    What is free is that of its container and machine; ranks on one machine share it. None where the system does not
    tell.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device)
    if not MEMINFO.exists():
        return None
    free = [_field(MEMINFO, "MemAvailable"), *_free_of_groups()]
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min(free) // ranks + _field(Path("/proc/self/status"), "VmRSS")


def _free_of_groups() -> Iterator[int]:
    """What each control group that holds this process, and has a limit, leaves of it, in bytes."""
    for line in OWN_GROUPS.read_text().splitlines() if OWN_GROUPS.exists() else ():
        _, kinds, name = line.split(":", 2)
        names, root = GROUP_FILES.get(kinds), CGROUP / kinds
        inner = root / name.strip("/")
        for folder in [inner, *inner.parents] if names else ():
            limit, used, cached = names or ("", "", "")
            if folder.is_relative_to(root) and (folder / used).exists() and (folder / limit).exists():
                most = (folder / limit).read_text().strip()
                if most != "max":
                    yield int(most) - int((folder / used).read_text()) + _statistic(folder / "memory.stat", cached)


def _statistic(path: Path, name: str) -> int:
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), 0)


def _peak_meter(device: torch.device) -> Callable[[Callable[[], None]], int] | None:
    """Runs something and returns the peak of memory in bytes."""
    if device.type == "cuda":

        def cuda_peak(run: Callable[[], None]) -> int:
            torch.cuda.reset_peak_memory_stats(device)
            run()
            return torch.cuda.max_memory_allocated(device)

        return cuda_peak
    clear = Path("/proc/self/clear_refs")

    def process_peak(run: Callable[[], None]) -> int:
        clear.write_text("5")  # makes the current size the peak
        run()
        return _field(Path("/proc/self/status"), "VmHWM")

    return process_peak if clear.exists() else None


def _field(path: Path, name: str) -> int:
    """A line of /proc in bytes."""
    line = next(line for line in path.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
