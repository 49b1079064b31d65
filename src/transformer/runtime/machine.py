"""Description of the machine that a run or a benchmark uses."""

import os
import platform
from pathlib import Path

import torch

from transformer.kernels.library import instruction_set


def machine() -> dict[str, str | int | float]:
    """Returns processor, available cores, threads, memory in GiB, system, kernels and, if present, the accelerator."""
    facts: dict[str, str | int | float] = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "kernels": instruction_set() or "torch's",
    }
    if hasattr(os, "sysconf"):
        facts["memory_gib"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    if torch.cuda.is_available():
        facts["accelerator"] = torch.cuda.get_device_name()
    return facts


def _processor() -> str:
    """Returns the model name of the processor from `/proc/cpuinfo`, or from Python's `platform` on other systems."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
