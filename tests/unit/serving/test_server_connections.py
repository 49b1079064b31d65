"""Clients that are slow, send too much, leave early or come in crowds."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from serving_fakes import CONTINUATION
from serving_http import SECONDS, RunningServer, running_server
from transformer.serving import connections
from transformer.serving.interfaces import Job

REQUEST = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n"
BODY = b'{"q": "a"}'


@pytest.fixture(scope="module")
def hasty() -> Iterator[RunningServer]:
    with running_server(limits={"headers_seconds": 0.2, "body_seconds": 0.2}) as running:
        yield running


@pytest.fixture(scope="module")
def strict() -> Iterator[RunningServer]:
    with running_server(limits={"headers_bytes": 4096}) as running:
        yield running


def received(connection: socket.socket) -> bytes:
    """Returns all that the server sends before it closes the connection."""
    content = b""
    try:
        while part := connection.recv(1 << 16):
            content += part
    except ConnectionResetError:
        pass
    return content


def answer(connection: socket.socket) -> bytes:
    """Returns one answer, which is short and JSON."""
    content = b""
    while not content.endswith(b"}"):
        part = connection.recv(1 << 16)
        assert part, content
        content += part
    return content


@pytest.mark.parametrize(
    "sent", [b"", b"POST /echo HTTP/1.1\r\nHost: x\r\nX-Slow: ", REQUEST, REQUEST + BODY[:5]],
    ids=["nothing", "headers", "no body", "half a body"],
)  # fmt: skip
def test_a_slow_client_is_told_and_closed(hasty: RunningServer, sent: bytes) -> None:
    """Catches slow-loris: connections that stay open for ever because their requests never end."""
    with hasty.connect() as connection:
        connection.sendall(sent)
        assert received(connection).startswith(b"HTTP/1.1 408 ")


def test_a_client_that_sends_a_byte_at_a_time_is_closed(hasty: RunningServer) -> None:
    """Catches a time limit that every byte starts anew."""
    with hasty.connect() as connection:
        connection.sendall(b"GET /live HTTP/1.1\r\nX-Slow: ")
        ended = threading.Event()

        def drip() -> None:
            while not ended.wait(0.02):
                try:
                    connection.sendall(b"a")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        assert received(connection)[:13] in (b"HTTP/1.1 408 ", b"")
        ended.set()
        thread.join(SECONDS)


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
"""Headers that Java's HttpClient and `curl --http2` send with a first request."""


@pytest.mark.parametrize("cut", [0, 30, 100, 167, 172], ids=["at once", "line", "headers", "end of headers", "body"])
def test_a_request_to_upgrade_is_answered_by_http_1(strict: RunningServer, cut: int) -> None:
    """Catches a body that is lost because its client also offers another protocol, and the requests behind it."""
    sent = REQUEST.replace(b"\r\n\r\n", b"\r\n" + UPGRADE + b"\r\n") + BODY
    with strict.connect() as connection:
        for part in (sent[:cut], sent[cut:]):
            connection.sendall(part)
            time.sleep(0.05)
        response = answer(connection)
        assert response.startswith(b"HTTP/1.1 200 "), response
        assert b'"texts":["A"]' in response
        connection.sendall(
            sent.replace(b"POST /echo", b"GET /live").replace(b"Content-Length: 10\r\n", b"")[: -len(BODY)]
        )
        assert answer(connection).startswith(b"HTTP/1.1 200 ")


def test_many_requests_to_upgrade_are_refused_at_once(strict: RunningServer) -> None:
    """Catches a connection that fails on many requests, or parses all that it is sent, since each is parsed anew."""
    request = b"GET /live HTTP/1.1\r\nHost: x\r\n" + UPGRADE + b"\r\n"
    with strict.connect() as connection:
        connection.sendall(request * 20)
        assert answer(connection).count(b"HTTP/1.1 200 ")
    with strict.connect() as connection:
        connection.sendall(request * 900)
        assert b"HTTP/1.1 400 " not in received(connection)  # it is closed, as for many other requests at a time
    with strict.connect() as connection:  # an answer to HTTP/1.0 ends the connection
        connection.sendall(request.replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert received(connection).startswith(b"HTTP/1.1 200 ")


def test_an_idle_connection_is_closed() -> None:
    """Catches connections that are kept without end between requests."""
    with running_server(limits={"keep_alive_seconds": 0.1}) as server, server.connect() as connection:
        connection.sendall(REQUEST + BODY)
        assert b"200 OK" in received(connection)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /live HTTP/1.1\r\n" + b"X-A: " + b"a" * 1_000_000,
        b"GET /live HTTP/1.1\r\n" + b"X-A: a\r\n" * 100_000,
        b"GET /" + b"a" * 1_000_000,
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X-A: a\r\n" * 100_000,
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"a" * 1_000_000,
    ],
    ids=["long header", "many headers", "long path", "trailers", "extension of a chunk"],
)
def test_header_floods_are_refused(strict: RunningServer, sent: bytes) -> None:
    """Catches headers and what surrounds chunks, which the limit on bodies does not count."""
    with strict.connect() as connection:
        try:
            connection.sendall(sent)
        except ConnectionError:
            return
        response = received(connection)
        assert response[:13] in (b"HTTP/1.1 431 ", b"HTTP/1.1 400 ", b""), response
    assert strict.request("GET", "/live")[0] == 200


def test_small_chunks_within_reason_are_accepted(strict: RunningServer) -> None:
    """Catches a limit on what surrounds chunks that refuses a client that sends pieces."""
    body = json.dumps({"q": ["word"] * 2000}).encode()
    with strict.connect() as connection:
        connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        pieces = [body[n : n + 16] for n in range(0, len(body), 16)]
        connection.sendall(b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""]))
        assert answer(connection).startswith(b"HTTP/1.1 200 ")


def test_a_body_of_100_mb_is_refused_before_it_is_read() -> None:
    """Catches a body that fills the memory, and an answer that the client never sees."""
    with running_server() as server:
        status, _, body = server.request("POST", "/echo", b"a" * 100_000_000, {"Content-Type": "application/json"})
        assert (status, "larger than" in body["error"]) == (413, True)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00", b"GET / HTTP/9.9\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["TLS", "version", "length", "two lengths"],
)  # fmt: skip
def test_broken_http_is_refused(strict: RunningServer, sent: bytes) -> None:
    """Catches bytes that are no HTTP and make the server fail, or that it and a proxy could read differently."""
    with strict.connect() as connection:
        connection.sendall(sent)
        assert received(connection).startswith(b"HTTP/1.1 400 ")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks often whether clients that send no more are there."""
    monkeypatch.setattr(connections, "PROBE_SECONDS", 0.01)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("n", [1, 3])
def test_a_client_that_closes_its_side_is_answered(n: int) -> None:
    """Catches a client such as `nc -N`, which ends its request by the end of what it sends, without an answer."""
    with running_server() as server, server.connect() as connection:
        server.call(server.engine.gate.clear)
        connection.sendall((REQUEST + BODY) * n)
        connection.shutdown(socket.SHUT_WR)
        server.wait_until(lambda: server.engine.n_running == 1)
        if n == 1:
            assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        server.call(server.engine.gate.set)
        content = received(connection)
        assert (content.count(b"HTTP/1.1 200 OK"), content.count(b'"A"')) == (n, n)
    with running_server() as server, server.connect() as connection:
        connection.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert received(connection).endswith(CONTINUATION[-1].encode() + b"\r\n0\r\n\r\n")


def test_half_a_request_of_a_client_that_closes_its_side_ends() -> None:
    """Catches a connection that waits for the rest of a body that cannot come."""
    with running_server() as server, server.connect() as connection:
        connection.sendall(REQUEST + BODY[:5])
        connection.shutdown(socket.SHUT_WR)
        assert received(connection) == b""


@pytest.mark.usefixtures("soon")
def test_work_of_a_client_that_left_is_cancelled() -> None:
    """Catches work for nobody, which delays that of others."""
    with running_server() as server:
        server.call(server.engine.gate.clear)
        with server.connect() as connection:
            connection.sendall(REQUEST + BODY)
            server.wait_until(lambda: server.engine.n_running == 1)
        server.wait_until(lambda: server.engine.n_cancelled == 1)
        server.wait_until(lambda: '"status": 499' in server.log.getvalue())


def test_a_stream_is_ended_when_its_client_leaves() -> None:
    """Catches a continuation that is generated without end for nobody."""
    ended = threading.Event()

    async def speak_forever(job: Job) -> AsyncGenerator[dict[str, Any], None]:
        try:
            while True:
                yield {"text": " more", "tokens": 1}
                await asyncio.sleep(0.001)
        finally:
            ended.set()

    with running_server() as server, server.connect() as connection:
        server.engine.stream = speak_forever  # type: ignore[method-assign]
        connection.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(1 << 10)
        connection.close()
        assert ended.wait(SECONDS)


def test_a_client_that_accepts_no_answer_is_closed() -> None:
    """Catches answers that fill the memory because their client does not read them."""

    async def answer_at_length(job: Job) -> list[dict[str, Any]]:
        return [{"text": "a" * 30_000_000}]  # more than the buffers of the operating system take

    with running_server(limits={"body_seconds": 0.1}) as server, server.connect() as connection:
        server.engine.run = answer_at_length  # type: ignore[method-assign]
        connection.sendall(REQUEST + BODY)
        server.wait_until(lambda: "/echo" in server.log.getvalue())
        server.wait_until(lambda: not server.server.server_state.connections)


def test_a_refused_body_is_not_taken_for_a_request(strict: RunningServer) -> None:
    """Catches a next request that is read as the body of one that was refused before it was sent."""
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100000000\r\n\r\n"
    with strict.connect() as connection:
        connection.sendall(head)
        response = received(connection)
        assert response.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in response.lower()


def test_requests_beyond_the_limit_of_a_client_are_refused() -> None:
    """Catches a client that occupies the server by requests at a time."""
    with running_server(limits={"concurrent": 2}) as server:
        server.call(server.engine.gate.clear)
        with server.connect() as first, server.connect() as second:
            for connection in (first, second):
                connection.sendall(REQUEST + BODY)
            server.wait_until(lambda: server.engine.n_running == 2)
            status, headers, _ = server.request("POST", "/echo", {"q": "b"})
            assert (status, headers["Retry-After"]) == (429, "1")
            server.call(server.engine.gate.set)
            assert b"200 OK" in answer(first)
            assert b"200 OK" in answer(second)
        assert server.request("POST", "/echo", {"q": "b"})[0] == 200


def test_a_late_answer_is_an_error() -> None:
    """Catches a request that waits without end for its answer."""
    with running_server(limits={"request_seconds": 0.1}) as server:
        server.call(server.engine.gate.clear)
        assert server.request("POST", "/echo", {"q": "b"})[0] == 504
        assert server.engine.n_cancelled == 1


def test_probes_are_answered_among_too_many_connections() -> None:
    """Catches idle connections that shut out all others, and a server that takes more than its limit."""
    with running_server(limits={"connections": 20}) as server, ExitStack() as opened:
        for _ in range(50):
            opened.enter_context(server.connect())
        assert server.request("GET", "/live")[0] == 200
        server.wait_until(lambda: len(server.server.server_state.connections) <= 20)


def test_busy_connections_are_not_closed_for_others() -> None:
    """Catches a connection beyond the limit for which a request under way is lost."""
    with running_server(limits={"connections": 2}) as server:
        server.call(server.engine.gate.clear)
        with server.connect() as first, server.connect() as second:
            for connection in (first, second):
                connection.sendall(REQUEST + BODY)
            server.wait_until(lambda: server.engine.n_running == 2)
            with server.connect() as third:
                assert received(third).startswith(b"HTTP/1.1 503 ")
            server.call(server.engine.gate.set)
            assert b"200 OK" in answer(first)
            assert b"200 OK" in answer(second)


def test_requests_in_a_row_on_one_connection(strict: RunningServer) -> None:
    """Catches requests sent without waiting whose answers are missing, and a flood of them that fills the memory."""
    last = REQUEST.replace(b"Host: x", b"Connection: close")
    with strict.connect() as connection:
        connection.sendall((REQUEST + BODY) * 4 + last + BODY)
        assert received(connection).count(b"200 OK") == 5
    with strict.connect() as connection:
        connection.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n" * 5000)
        connection.shutdown(socket.SHUT_WR)
        received(connection)
    assert strict.request("GET", "/live")[0] == 200


def test_a_crowd_of_open_connections() -> None:
    """Catches a server that is slow or fails with many open connections."""
    with running_server(limits={"concurrent": 0}) as server, ExitStack() as opened:
        crowd = [opened.enter_context(server.connect()) for _ in range(400)]
        for _ in range(2):
            for connection in crowd:
                connection.sendall(REQUEST + BODY)
            assert all(b'"A"' in answer(connection) for connection in crowd)
