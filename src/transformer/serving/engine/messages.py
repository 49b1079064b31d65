"""Messages between the processes of the engine: JSON objects over Unix sockets.

Spawner and hosts receive *control messages*, one a packet, which may carry a socket. Workers receive requests over a
stream socket, each JSON text after its length.
"""

import json
import socket
from collections.abc import Mapping
from typing import Any, Final

MAX_CONTROL_BYTES: Final = 1 << 17
"""Maximum size of a control message."""
MAX_PROBLEM: Final = 2000
"""Maximum number of characters of an error message, so that it fits into a control message."""
LENGTH_BYTES: Final = 4
MAX_MESSAGE_BYTES: Final = 1 << 30
Message = Mapping[str, Any]


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Returns two connected sockets for control messages."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send_control(control: socket.socket, message: Message, passed: socket.socket | None = None) -> None:
    """Sends a control message.

    Args:
        control: Socket of `control_pair`.
        message: JSON object.
        passed: Socket that the receiver is to use.

    Raises:
        OSError: The other process has ended.
    """
    data = json.dumps(message).encode()
    descriptors = [] if passed is None else [passed.fileno()]
    socket.send_fds(control, [data], descriptors, socket.MSG_NOSIGNAL)


def receive_control(control: socket.socket) -> tuple[Message, socket.socket | None] | None:
    """Returns the next control message and the socket that it carries, if any; None if the other process has ended.

    Raises:
        BlockingIOError: The socket does not block, and no message has arrived.
    """
    try:
        data, descriptors, _, _ = socket.recv_fds(control, MAX_CONTROL_BYTES, 1)
    except ConnectionError:
        return None
    if not data:
        return None
    return json.loads(data), socket.socket(fileno=descriptors[0]) if descriptors else None


def encode(message: Message) -> bytes:
    """Returns a message as it is sent over a stream socket."""
    data = json.dumps(message).encode()
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def send(stream: socket.socket, message: Message) -> None:
    """Sends a message over a stream socket.

    Raises:
        OSError: The other process has ended.
    """
    stream.sendall(encode(message))


def receive(stream: socket.socket) -> Message | None:
    """Returns the next message of a stream socket; None if the other process has ended."""
    try:
        length = _receive_exactly(stream, LENGTH_BYTES)
        data = length and _receive_exactly(stream, int.from_bytes(length, "big"))
    except ConnectionError:
        return None
    return json.loads(data) if data else None


def _receive_exactly(stream: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = stream.recv(min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)


class Decoder:
    """Splits the bytes received from a stream socket into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Returns the messages that are complete after further bytes.

        Raises:
            ValueError: The bytes are not a message.
        """
        self._buffer += data
        messages: list[Message] = []
        while len(self._buffer) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
            if end > MAX_MESSAGE_BYTES:
                raise ValueError(f"a message of {end} bytes is too long")
            if len(self._buffer) < end:
                break
            messages.append(json.loads(self._buffer[LENGTH_BYTES:end]))
            del self._buffer[:end]
        return messages
