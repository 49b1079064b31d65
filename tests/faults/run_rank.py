"""Runs the real command as a rank of torchrun, with faults that the environment selects.

FAULTS contains, in JSON, `rank/restart` -> [updates done, "kill" | "raise" | "terminate" | "abort last"].
"""

import atexit
import json
import os
import signal

from run_server import at_step, kill

from transformer.cli import main


def fail() -> None:
    raise RuntimeError("planted in one rank")


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def abort_last() -> None:
    """Aborts while Python exits, as a thread of gloo may."""
    atexit.register(os.abort)


if __name__ == "__main__":
    faults = json.loads(os.environ.get("FAULTS", "{}"))
    rank_and_restart = f"{os.environ['RANK']}/{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    if rank_and_restart in faults:
        step, act = faults[rank_and_restart]
        at_step(step, {"kill": kill, "raise": fail, "terminate": terminate, "abort last": abort_last}[act])
    main()
