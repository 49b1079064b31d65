"""The real command as a rank that torchrun started, broken where the environment tells it to be.

FAULTS holds, in JSON, `rank/restart` -> [updates done, "kill" | "raise" | "terminate" | "abort last"].
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
    """As a thread of gloo may, while Python ends."""
    atexit.register(os.abort)


if __name__ == "__main__":
    faults = json.loads(os.environ.get("FAULTS", "{}"))
    place = f"{os.environ['RANK']}/{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    if place in faults:
        step, act = faults[place]
        at_step(step, {"kill": kill, "raise": fail, "terminate": terminate, "abort last": abort_last}[act])
    main()
