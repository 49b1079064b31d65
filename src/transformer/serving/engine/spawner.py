"""The spawner process: imports torch once, and forks a process for each model, and one for documents.

The server starts it with `python -m transformer.serving.engine.spawner FD`. It has one thread, so that it can fork
safely.
"""

import os
import signal
import socket
import sys

from transformer.serving.engine import document_process, model_process
from transformer.serving.engine.starting import receive_settings


def main(control: socket.socket) -> None:
    """Forks processes until the server closes the socket."""
    while (received := receive_settings(control)) is not None:
        settings, stream = received
        if not os.fork():
            control.close()
            (document_process if "documents" in settings else model_process).run(stream, settings)
        stream.close()


def ignore_signals() -> None:
    """Leaves all signals that a terminal or a service manager sends to the whole group of processes to the server.

    Ended children are not waited for: the server sees their sockets close.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    ignore_signals()
    main(socket.socket(fileno=int(sys.argv[1])))
