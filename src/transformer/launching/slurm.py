"""Batch scripts for Slurm."""

import shlex
from typing import Final

from transformer.errors import ConfigError
from transformer.launching.cluster_job import ClusterJob, torchrun

RENDEZVOUS: Final = (
    '--rdzv-id="$SLURM_JOB_ID"',
    '--rdzv-endpoint="$head:$((20000 + SLURM_JOB_ID % 20000))"',  # jobs on the same machine use different ports
)
SECONDS_TO_SAVE: Final = 600
"""Time before the end of training at which it gets SIGTERM."""
SECONDS_TO_GIVE_UP: Final = 60
"""Time before the end of work on shards at which it gets SIGTERM."""


def slurm_script(job: ClusterJob, partition: str = "") -> str:
    """Returns a script for `sbatch`: torchrun on each machine, or an array of processes that share shards.

    Args:
        job: The job.
        partition: Partition of the cluster; empty takes the default.

    Raises:
        ConfigError: The command is a server, or not one for several machines.
    """
    if job.kind == "server":
        raise ConfigError(
            "serve has no end, and Slurm runs jobs that end; launch it on kubernetes, or start it as it is"
        )
    options = ["--job-name=" + job.job_name, f"--cpus-per-task={job.cpus}", f"--time={_time(job.hours)}"]
    options += ["--requeue", "--open-mode=append"]
    options += [f"--partition={partition}"] if partition else []
    options += [f"--mem={job.memory}"] if job.memory else []
    if job.kind == "ranks":
        options += [f"--nodes={job.nodes}", "--ntasks-per-node=1", f"--output={job.job_name}-%j.log"]
        options += [f"--signal=TERM@{SECONDS_TO_SAVE}"]
        options += [f"--gpus-per-node={job.gpus}"] if job.gpus else []
        command = _ranks(job)
    else:
        options += [f"--array=0-{job.copies - 1}", f"--output={job.job_name}-%A_%a.log"]
        options += [f"--signal=B:TERM@{SECONDS_TO_GIVE_UP}"]
        options += [f"--gpus={job.gpus}"] if job.gpus else []
        command = [f"exec {shlex.join(('transformer', *job.command))}"]  # so that Slurm's signal reaches it
    lines = ["#!/bin/bash", *(f"#SBATCH {shlex.quote(option)}" for option in options), *job.setup]
    threads = job.cpus // job.ranks_of_node if job.kind == "ranks" else job.cpus
    return "\n".join([*lines, f"export OMP_NUM_THREADS={max(1, threads)}", *command]) + "\n"


def _ranks(job: ClusterJob) -> list[str]:
    words = [word if word in RENDEZVOUS else shlex.quote(word) for word in torchrun(job, RENDEZVOUS)]
    return [
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f"srun --cpus-per-task={job.cpus} {' '.join(words)}",
    ]


def _time(hours: float) -> str:
    """Returns a time as Slurm writes it, in whole minutes."""
    minutes = max(1, round(60 * hours))
    return f"{minutes // 60}:{minutes % 60:02d}:00"
