"""A command and the machines that it needs, for any cluster."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from transformer.errors import ConfigError

Kind = Literal["ranks", "shards", "server"]
TRAINING_COMMANDS: Final = ("train", "preflight")
"""Commands that torchrun starts as ranks."""
RESTARTS: Final = {"train": 3}
"""Number of times that torchrun starts the ranks of a command again after one has failed."""
NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")
"""Names that Slurm and Kubernetes take, short enough for the number of a pod after them."""


@dataclass(frozen=True)
class ClusterJob:
    """A job on a cluster.

    Attributes:
        command: Command of the program with its arguments.
        name: Name of the job.
        nodes: Number of machines of ranks.
        processes: Number of processes that share shards, of servers, or of ranks on each machine; 0 takes the default.
        gpus: Number of GPUs of a machine of ranks, or of any other process.
        cpus: Number of CPUs of the same.
        memory: Memory of the same, as the cluster writes it; empty takes the default of the cluster.
        hours: Limit of its time.
        setup: Shell commands before it.
    """

    command: tuple[str, ...]
    name: str = ""
    nodes: int = 1
    processes: int = 0
    gpus: int = 0
    cpus: int = 1
    memory: str = ""
    hours: float = 24.0
    setup: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """Whether ranks of torchrun train, processes share shards, or servers answer requests.

        Raises:
            ConfigError: The command is none of these.
        """
        if self.command[0] in TRAINING_COMMANDS:
            return "ranks"
        if self.command[0] == "serve":
            return "server"
        if any(word == "--shards" or word.startswith("--shards=") for word in self.command):
            return "shards"
        raise ConfigError(
            f"{' '.join(self.command[:2])} is not work for several machines; launch train, preflight, serve, or a "
            "command with --shards"
        )

    @property
    def job_name(self) -> str:
        """Name of the job, by default that of its command.

        Raises:
            ConfigError: Clusters do not take the name.
        """
        name = self.name or f"transformer-{self.command[0]}"
        if not NAME.fullmatch(name):
            raise ConfigError(f"--name {name!r} is not a name of a job; use up to 50 of a to z, 0 to 9 and -")
        return name

    @property
    def ranks_of_node(self) -> int:
        """Number of ranks on each machine: as many as it has GPUs, unless the number is given."""
        return self.processes or self.gpus or 1

    @property
    def copies(self) -> int:
        """Number of processes that share shards, or of servers."""
        return self.processes or 1


def torchrun(job: ClusterJob, rendezvous: Sequence[str]) -> list[str]:
    """Returns the command that starts the ranks of one machine.

    Args:
        job: The job.
        rendezvous: Options of torchrun by which the machines find each other.
    """
    return [
        "torchrun", f"--nnodes={job.nodes}", f"--nproc-per-node={job.ranks_of_node}", "--rdzv-backend=c10d",
        *rendezvous, f"--max-restarts={RESTARTS.get(job.command[0], 0)}", "--shutdown-timeout=300", "-m", "--",
        "transformer", *job.command,
    ]  # fmt: skip
