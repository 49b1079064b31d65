"""How much memory a batch needs, found out before the first step."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from transformer.errors import ConfigError
from transformer.protocols import Source
from transformer.training.step import TrainingState

Examples = NDArray[np.integer[Any]]
SHARES: Final = (4, 2)
"""The parts of the worst batch that are tried before the whole: two peaks give the line that tells the third."""
ADAM_BYTES: Final = 8
"""The two float32 moments of a parameter, which the first update allocates."""
GIB: Final = 2**30
CGROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryPlan:
    """What the worst batch needs.

    Attributes:
        rows: examples of it.
        predicted: peak of the process (or of the GPU's memory) in bytes, from the smaller trials.
        available: bytes that the process may have in all, of its container or the machine.
        bytes_a_row: what one more example adds.
    """

    rows: int
    predicted: int
    available: int
    bytes_a_row: float

    def __str__(self) -> str:
        """What is said before the first step."""
        return f"memory: about {self.predicted / GIB:.2f} GiB of {self.available / GIB:.1f} GiB for the largest batch"


def worst_batch(source: Source, batches: Sequence[Examples]) -> Examples:
    """The batch with the most padded tokens on all sides together."""
    return max(batches, key=lambda ids: len(ids) * int(source.lengths[ids].max(axis=0).sum()))


def plan_memory(state: TrainingState, source: Source, ids: Examples) -> MemoryPlan | None:
    """Tries small parts of a batch and predicts the peak of the whole; None where the system does not tell.

    Nothing of the state changes but memory: parameters, optimizer, gradients and random numbers are as before.
    """
    meter = _meter(state.hardware.device)
    if meter is None or len(ids) < SHARES[0]:
        return None
    longest = ids[np.argsort(-source.lengths[ids].sum(axis=1), kind="stable")]
    trials: list[tuple[int, int]] = []
    for share in SHARES:
        part = longest[: len(ids) // share]
        trials.append((len(part), meter(lambda part=part: try_batch(state, source, part))))
    (n_small, small), (n_large, large) = trials
    bytes_a_row = max(0.0, (large - small) / (n_large - n_small))
    parameters = sum(parameter.numel() for parameter in state.objective.parameters())
    moments = 0 if state.optimizer.state else ADAM_BYTES * parameters
    predicted = large + moments + bytes_a_row * (len(ids) - n_large)
    return MemoryPlan(len(ids), round(predicted), available_bytes(state.hardware.device), bytes_a_row)


def refuse_too_large(plan: MemoryPlan, batch_tokens: int) -> None:
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
        f"{plan.available / GIB:.2f} GiB are available; {advice}, or cut batches by training.accumulation"
    )


def fitting_tokens(plan: MemoryPlan, batch_tokens: int, share: float = 0.9) -> int:
    """The largest budget that takes at most a share of the available memory, in steps of 256; 0 if there is none."""
    fixed = plan.predicted - plan.bytes_a_row * plan.rows
    rows = (share * plan.available - fixed) / max(plan.bytes_a_row, 1.0)
    return max(0, math.floor(rows / plan.rows * batch_tokens / 256) * 256)


def try_batch(state: TrainingState, source: Source, ids: Examples) -> None:
    """Goes forward and back through a batch and forgets it."""
    generator = torch.get_rng_state()
    state.objective.train()
    with state.hardware.autocast():
        result = state.objective(source.fetch(ids).to(state.hardware.device))
    result.loss_sum.backward()
    state.optimizer.zero_grad()
    torch.set_rng_state(generator)


def available_bytes(device: torch.device) -> int:
    """Memory that this process may hold in all: what it holds, and what is free within its container and machine."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device)
    free = [_field(Path("/proc/meminfo"), "MemAvailable")]
    limit, used = CGROUP / "memory.max", CGROUP / "memory.current"
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        free.append(int(limit.read_text()) - int(used.read_text()) + _inactive_file())
    return min(free) + _field(Path("/proc/self/status"), "VmRSS")


def _inactive_file() -> int:
    """Cached files that the container would give up first."""
    lines = (CGROUP / "memory.stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)


def _meter(device: torch.device) -> Callable[[Callable[[], None]], int] | None:
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
