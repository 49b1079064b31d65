"""Connections of the server: limits on slow, large and idle ones, and on their number."""

import asyncio
from asyncio.events import TimerHandle
from functools import partial
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from transformer.serving.settings import Limits

PROBE_SECONDS: Final = 1.0
"""Interval in which a client that sends no more is sent a part of an answer, which tells whether it still receives."""
MAX_PIPELINED: Final = 32
"""Requests that may wait on one connection, which hardly any client uses for more than one at a time."""


class LimitedProtocol(HttpToolsProtocol):
    """A connection that is closed when its client is too slow or sends too much.

    A request has time limits for its headers and its body, and an answer one for each part that the client must accept.
    What surrounds a body (headers, sizes of chunks, trailers) may not be larger than the limit on headers and the body.

    A client may close its side of the connection after its requests, and is answered (RFC 9112, Section 9.6). One that
    has closed both sides looks the same until something is sent to it, which it rejects: it gets "100 Continue" again
    and again, which clients discard (RFC 9110, Section 15.2), until the answer is there.

    A request to upgrade to another protocol, such as h2c, is answered by HTTP/1.1, as RFC 9110 (Section 7.8) allows.
    """

    limits: Limits

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._read_timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None
        self._probe_timer: TimerHandle | None = None
        self._n_framing_bytes = 0
        self._reads_headers = True
        self._is_upgrade = False

    @property
    def is_idle(self) -> bool:
        """Whether no request has begun, or the last one is answered."""
        is_waiting = not self._n_framing_bytes and (not self.cycle or self.cycle.response_complete)
        return is_waiting and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Accepts a connection; if there are too many, an idle one is closed instead, or the new one if none is."""
        super().connection_made(transport)
        self._wait_for_client(self.limits.headers_seconds)
        if len(self.connections) <= self.limits.connections:
            return
        others = (other for other in self.connections if other is not self)
        idle = next((other for other in others if isinstance(other, LimitedProtocol) and other.is_idle), None)
        if idle is not None:
            idle.transport.abort()
        else:
            self._refuse(b"503 Service Unavailable", b"too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the timers."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._cancel(self._read_timer)
        self._cancel(self._write_timer)
        self._cancel(self._probe_timer)

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Keeps the connection of a client that sends no more until its requests are answered.

        Returns:
            Whether a request waits for its answer; one that is not complete does not.
        """
        cycle = self.cycle
        if not cycle or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        self._probe_timer = self.loop.call_later(PROBE_SECONDS, self._probe)
        return True

    def _probe(self) -> None:
        cycle = self.cycle
        is_before_answer = not self.pipeline and not cycle.response_started and cycle.scope["http_version"] == "1.1"
        if is_before_answer and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._probe_timer = self.loop.call_later(PROBE_SECONDS, self._probe)

    def data_received(self, data: bytes) -> None:
        """Parses a part of a request."""
        if self.transport.is_closing():
            return
        self._n_framing_bytes += len(data)
        self._parse(data)
        if self.transport.is_closing():
            return
        if self._n_framing_bytes > self.limits.headers_bytes:
            self._refuse(b"431 Request Header Fields Too Large", b"the headers are too large")
        elif len(self.pipeline) > MAX_PIPELINED:
            self._refuse(b"429 Too Many Requests", b"too many requests at a time on one connection")

    def _parse(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        while data and len(self.pipeline) <= MAX_PIPELINED:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = self._without_upgrade() + data[upgrade.args[0] :] if self._is_upgrade else b""
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                return

    def _without_upgrade(self) -> bytes:
        """Returns the head of the request without `Upgrade`, after which a parser skips the body, for a new parser."""
        headers = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        version = self.parser.get_http_version().encode()
        head = b"\r\n".join([b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version), *headers])
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._is_upgrade = False
        return head + b"\r\n\r\n"

    def on_message_begin(self) -> None:
        """Begins to wait for headers."""
        super().on_message_begin()
        self._reads_headers = True
        self._wait_for_client(self.limits.headers_seconds)

    def on_headers_complete(self) -> None:
        """Starts the application, and begins to wait for the body."""
        self._is_upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._is_upgrade:
            return
        super().on_headers_complete()
        self._reads_headers = False
        if self.app_state.get("is_stopping"):
            self.cycle.keep_alive = False
        self._wait_for_client(self.limits.body_seconds)

    def on_body(self, body: bytes) -> None:
        """Receives a part of the body, which allows for as many bytes of framing."""
        self._n_framing_bytes -= min(2 * len(body), self._n_framing_bytes)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Ends the wait for the client."""
        if self._is_upgrade:
            return
        super().on_message_complete()
        self._n_framing_bytes = 0
        self._cancel(self._read_timer)

    def pause_writing(self) -> None:
        """Begins to wait until the client accepts more of the answer."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Ends the wait."""
        super().resume_writing()
        self._cancel(self._write_timer)

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection, even if its client has not accepted the last answer."""
        self._close_or_abort()

    def close_after_answer(self) -> None:
        """Closes the connection after the answer that is being prepared."""
        if self.cycle and not self.cycle.response_complete:
            self.cycle.keep_alive = False

    def _wait_for_client(self, seconds: float) -> None:
        """Closes the connection after a time in which a part of a request must be complete."""
        self._cancel(self._read_timer)
        refuse = partial(self._refuse, b"408 Request Timeout", b"the request took too long")
        self._read_timer = self.loop.call_later(seconds, refuse)

    def _refuse(self, status: bytes, message: bytes) -> None:
        """Answers instead of the application, unless its answer has begun, and closes the connection."""
        cycle = self.cycle
        is_answering = cycle and (not cycle.response_complete if self._reads_headers else cycle.response_started)
        if not is_answering:
            head = b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (status, len(message)) + message)
        self._close_or_abort()

    def _close_or_abort(self) -> None:
        """Closes the connection; one whose client accepts nothing is aborted after a time."""
        self._cancel(self._write_timer)
        self.transport.close()
        self._write_timer = self.loop.call_later(self.limits.headers_seconds, self.transport.abort)

    @staticmethod
    def _cancel(timer: TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def limited_protocol(limits: Limits) -> type[LimitedProtocol]:
    """Returns the class of the connections of one server."""
    return type("ServerProtocol", (LimitedProtocol,), {"limits": limits})
