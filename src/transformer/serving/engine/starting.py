"""Messages to the spawner: settings of a process to start, with the socket of its frames."""

import json
import socket
from collections.abc import Mapping
from typing import Any, Final

MAX_BYTES: Final = 1 << 16
"""Maximum size of the settings."""
Settings = Mapping[str, Any]
"""Settings of a process, see `transformer.serving.engine.model_process.run`."""


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Returns two connected sockets for these messages."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send_settings(control: socket.socket, settings: Settings, stream: socket.socket) -> None:
    """Sends settings and a socket.

    Raises:
        OSError: The spawner has ended.
    """
    socket.send_fds(control, [json.dumps(settings).encode()], [stream.fileno()], socket.MSG_NOSIGNAL)


def receive_settings(control: socket.socket) -> tuple[Settings, socket.socket] | None:
    """Returns the next settings and their socket; None if the server has ended."""
    data, descriptors, _, _ = socket.recv_fds(control, MAX_BYTES, 1)
    return (json.loads(data), socket.socket(fileno=descriptors[0])) if data else None
