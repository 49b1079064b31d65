"""The spawner process: imports torch once, describes models, and forks a host for each model to load.

The server starts it with `python -m transformer.serving.engine.spawner FD`. It has one thread, so that it can fork
safely.
"""

import os
import signal
import socket
import sys
import traceback
from typing import Any

from transformer.errors import TransformerError
from transformer.serving.engine.description import describe
from transformer.serving.engine.host import run_host
from transformer.serving.engine.messages import MAX_PROBLEM, receive_control, send_control


def main(control: socket.socket) -> None:
    """Answers the requests of the server until it closes the socket.

    Requests:
        {"type": "describe", "id", "path"}: the answer is {"id", "facts"}, or {"id", "problem"}; see `describe`.
        {"type": "load", ...} with a socket: forks a host, which answers over that socket; see `run_host`.
    """
    while (received := receive_control(control)) is not None:
        message, passed = received
        if message["type"] == "describe":
            send_control(control, {"id": message["id"], **_described(message["path"])})
        elif passed is not None:
            if not os.fork():
                control.close()
                run_host(passed, message)
            passed.close()


def _described(path: str) -> dict[str, Any]:
    try:
        return {"facts": describe(path)}
    except TransformerError as error:
        problem = str(error)
    except Exception as error:
        traceback.print_exc()
        problem = f"{path}: {type(error).__name__}: {error}"
    return {"problem": problem[:MAX_PROBLEM]}


def ignore_signals() -> None:
    """Leaves all signals that a terminal or a service manager sends to the whole group of processes to the server.

    Ended children are not waited for: the server sees their sockets close.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    ignore_signals()
    main(socket.socket(fileno=int(sys.argv[1])))
