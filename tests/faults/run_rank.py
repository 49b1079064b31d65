"""Runs the real command as a rank of torchrun, with faults that the environment selects.

FAULTS contains, in JSON, `rank/restart` -> [updates done, name of one of `ACTS`]. With " inside" after the name, the
fault happens inside the exchange of signal numbers that follows the update.
"""

import atexit
import json
import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
from run_server import at_step, kill

from transformer.cli import main


def fail() -> None:
    raise RuntimeError("planted in one rank")


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def abort_last() -> None:
    """Aborts while Python exits, as a thread of gloo may."""
    atexit.register(os.abort)


def pause() -> None:
    """Stops this process for a second, while the other rank waits for it and receives SIGTERM."""
    siblings = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
    other = next(number for number in siblings if int(number) != os.getpid() and is_rank(number))
    subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -TERM {other}; sleep 0.5; kill -CONT {os.getpid()}"])
    freeze()


def is_rank(number: str) -> bool:
    return "run_rank.py" in Path(f"/proc/{number}/cmdline").read_text()


def freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def at_exchange(act: Callable[[], None]) -> None:
    """Calls a function inside the next exchange of signal numbers."""
    original = dist.all_reduce

    def all_reduce(values: Any, operation: Any = dist.ReduceOp.SUM, **options: Any) -> Any:
        if operation == dist.ReduceOp.MAX:
            dist.all_reduce = original
            act()
        return original(values, operation, **options)

    dist.all_reduce = all_reduce


ACTS = {"kill": kill, "raise": fail, "terminate": terminate, "abort last": abort_last, "pause": pause, "freeze": freeze}
INSIDE = " inside"


if __name__ == "__main__":
    faults = json.loads(os.environ.get("FAULTS", "{}"))
    rank_and_restart = f"{os.environ['RANK']}/{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    if rank_and_restart in faults:
        step, name = faults[rank_and_restart]
        act = ACTS[name.removesuffix(INSIDE)]
        at_step(step, partial(at_exchange, act) if name.endswith(INSIDE) else act)
    main()
