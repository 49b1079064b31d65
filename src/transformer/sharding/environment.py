"""The place of a process among those that launchers start: torchrun, Slurm, Kubernetes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LAUNCHERS: Final = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Slurm array", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
    ("Kubernetes", "JOB_COMPLETION_INDEX", "JOB_COMPLETIONS"),
)
"""Launchers, with the variables of the index and the number of processes that each sets.

An indexed job of Kubernetes sets no number of processes; the manifest of the job may set `JOB_COMPLETIONS`.
"""


@dataclass(frozen=True)
class Place:
    """The place of a process.

    Attributes:
        launcher: Name of what started it; empty if none did.
        rank: Its index, from 0.
        size: Number of processes; 1 if it is not known.
    """

    launcher: str = ""
    rank: int = 0
    size: int = 1

    def first_of(self, n_items: int) -> int:
        """Returns the item with which this process begins, so that all begin at places of about equal distance."""
        return n_items * (self.rank % self.size) // self.size


def find_place(environment: Mapping[str, str] = os.environ) -> Place:
    """Returns the place of this process, by the environment of its launcher."""
    for launcher, rank, size in LAUNCHERS:
        if environment.get(rank, "").isdecimal():
            count = environment.get(size, "")
            return Place(launcher, int(environment[rank]), max(1, int(count)) if count.isdecimal() else 1)
    return Place()
