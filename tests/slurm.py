"""A cluster of one machine: Slurm as Debian packages it, with configuration, state and keys in a folder of its own."""

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}
CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller_port}
SlurmdPort={daemon_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """A running Slurm.

    Attributes:
        environment: Variables with which its programs find it.
    """

    def __init__(self, folder: Path) -> None:
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def call(self, *command: str, cwd: Path | None = None) -> str:
        """Runs one of its programs and returns what it prints."""
        return subprocess.run(
            command, env=self.environment, cwd=cwd, capture_output=True, text=True, check=True
        ).stdout  # fmt: skip

    def states(self, job: str) -> list[str]:
        """Returns the states of a job, those of its array's tasks."""
        text = self.call("scontrol", "--oneliner", "show", "job", job)
        return [word.removeprefix("JobState=") for word in text.split() if word.startswith("JobState=")]

    def wait(self, job: str, seconds: float = 1800) -> list[str]:
        """Waits for the end of a job and returns its states."""
        end = time.monotonic() + seconds
        while not set(self.states(job)) <= ENDED and time.monotonic() < end:
            time.sleep(1)
        return self.states(job)


def missing_programs() -> list[str]:
    """Returns the programs of Slurm that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


@contextmanager
def running_slurm(folder: Path, cpus: int = 2) -> Iterator[Slurm]:
    """Starts Slurm, and stops it at the end."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    host, ports = socket.gethostname(), [_free_port(), _free_port()]
    values = {"host": host, "user": getpass.getuser(), "folder": folder, "cpus": cpus}
    text = CONFIGURATION.format(controller_port=ports[0], daemon_port=ports[1], **values)
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "munge.key").chmod(0o400)
    slurm = Slurm(folder)
    munge = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log",
             "seed-file": "munge.seed"}  # fmt: skip
    options = [f"--{option}={folder / name}" for option, name in munge.items()]
    daemons: Sequence[Sequence[str]] = (
        ["munged", "--foreground", "--force", *options], ["slurmctld", "-D"], ["slurmd", "-D", "-N", host],
    )  # fmt: skip
    with ExitStack() as stack:
        for command in daemons:
            log = stack.enter_context((folder / f"{command[0]}.output").open("wb"))
            daemon = subprocess.Popen(command, env=slurm.environment, stdout=log, stderr=log)
            stack.callback(_stop, daemon)
            time.sleep(1)
        _wait_for_node(slurm)
        yield slurm


def _wait_for_node(slurm: Slurm, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = subprocess.run(
            ["scontrol", "show", "node"], env=slurm.environment, capture_output=True, text=True, check=False
        )
        if "State=IDLE" in result.stdout and "NOT_RESPONDING" not in result.stdout:
            return
        time.sleep(1)
    raise TimeoutError(f"Slurm's machine is not ready: {result.stdout}{result.stderr}")


def _stop(daemon: "subprocess.Popen[bytes]") -> None:
    daemon.terminate()
    try:
        daemon.wait(30)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
