"""Frames: messages of bytes between the processes of a pool, over stream sockets.

The content of a frame is up to the sender. Where texts of strangers pass, it is JSON and never a pickle, which would be
code.
"""

import json
import socket
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

_HEADER: Final = struct.Struct("!IQB")
MAX_BYTES: Final = 1 << 30
"""Maximum size of the data of a frame."""
RECEIVED_BYTES: Final = 1 << 20
"""Maximum number of bytes received at a time."""


class Kind(IntEnum):
    """Kind of a frame."""

    REQUEST = 0
    """Asks for an answer."""
    CANCEL = 1
    """Ends the answer to a request early; what follows is its result."""
    KILL = 2
    """Ends the process that works on a request."""
    PART = 3
    """A part of an answer before its result."""
    RESULT = 4
    """The end of an answer."""
    DIED = 5
    """The process that worked on a request has ended; there will be no result."""
    STATUS = 6
    """News of the sender that belong to no request."""


class Frame(NamedTuple):
    """A message.

    Attributes:
        kind: Kind of the message.
        key: Number of the request that it belongs to.
        data: Content.
    """

    kind: Kind
    key: int = 0
    data: bytes = b""

    def encode(self) -> bytes:
        """Returns the bytes to send."""
        return _HEADER.pack(len(self.data), self.key, self.kind) + self.data


def encode_message(message: Mapping[str, Any], content: bytes = b"") -> bytes:
    """Returns the data of a frame with a JSON object and, behind it, the bytes of a file."""
    data = json.dumps(message).encode()
    return data + b"\n" + content if content else data


def decode_message(data: bytes) -> dict[str, Any]:
    """Returns the JSON object of a frame; the bytes behind it are its "content"."""
    head, _, content = data.partition(b"\n")
    message: dict[str, Any] = json.loads(head)
    return message | {"content": content} if content else message


class Decoder:
    """Splits the bytes that a stream socket receives into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Returns the frames that are complete after further bytes.

        Raises:
            ValueError: The bytes are not frames.
        """
        self._buffer += data
        frames: list[Frame] = []
        while len(self._buffer) >= _HEADER.size:
            size, key, kind = _HEADER.unpack_from(self._buffer)
            if size > MAX_BYTES:
                raise ValueError(f"a frame of {size} bytes is too long")
            end = _HEADER.size + size
            if len(self._buffer) < end:
                break
            frames.append(Frame(Kind(kind), key, bytes(self._buffer[_HEADER.size : end])))
            del self._buffer[:end]
        return frames


class Channel:
    """Frames over a socket that is never waited for, as an event loop needs them.

    Args:
        stream: Connected stream socket.

    Attributes:
        stream: The socket.
        is_closed: Whether `receive` found that the other process has closed its end.
    """

    def __init__(self, stream: socket.socket) -> None:
        stream.setblocking(False)
        self.stream, self.is_closed = stream, False
        self._decoder, self._unsent = Decoder(), bytearray()

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait until the socket can take them."""
        return bool(self._unsent)

    def send(self, frame: Frame) -> None:
        """Sends a frame, or what the socket takes of it; `flush` sends the rest."""
        self._unsent += frame.encode()
        self.flush()

    def flush(self) -> None:
        """Sends waiting bytes. Those to a process that has ended are dropped; `receive` then sets `is_closed`."""
        try:
            while self._unsent:
                del self._unsent[: self.stream.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()

    def receive(self) -> list[Frame]:
        """Returns all frames that have arrived.

        Raises:
            ValueError: The bytes are not frames.
        """
        frames: list[Frame] = []
        try:
            while data := self.stream.recv(RECEIVED_BYTES):
                frames += self._decoder.feed(data)
            self.is_closed = True
        except BlockingIOError:
            pass
        except OSError:
            self.is_closed = True
        return frames
