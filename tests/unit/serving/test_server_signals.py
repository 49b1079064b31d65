"""Starts and ends of the server as a process of its own, with an engine without models."""

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serving_http import SECONDS

PROGRAM = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = {paths!r}
from serving_fakes import FakeEngine
from serving_http import OPERATIONS
from transformer.serving.access import Access
from transformer.serving.app import create_app
from transformer.serving.log import ServerLog
from transformer.serving.metrics import ServerMetrics
from transformer.serving.operations import Services
from transformer.serving.server import StoppableServer, bind
from transformer.serving.settings import ServerSettings

class Engine(FakeEngine):
    async def open(self):
        self.gate.clear()
        asyncio.get_running_loop().add_reader(0, self.gate.set)
    async def run_each(self, job):
        log.write("accepted")
        return await super().run_each(job)

settings = ServerSettings(models={{"en-de": "en-de"}}, keys={keys})
engine, log, access = Engine(), ServerLog("json"), Access(settings)
app = create_app(Services(settings, engine, None, None, ServerMetrics()), access, log, OPERATIONS)
server = StoppableServer(app, settings, engine, access, log)
with server.handled_signals():
    asyncio.run(server.serve_and_close(bind("127.0.0.1", 0)))
print("closed" if engine.is_closed else "open", engine.n_reloads)
"""
Process = subprocess.Popen[str]


@contextmanager
def started(keys: Path | None = None) -> Iterator[tuple[Process, http.client.HTTPConnection]]:
    """Starts a server whose engine answers after a byte on standard input."""
    program = PROGRAM.format(paths=sys.path, keys=keys and f"Path({str(keys)!r})")
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        port = int(process.stdout.readline().rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        yield process, connection
        connection.close()
    finally:
        process.kill()
        process.communicate()


def wait_for(process: Process, event: str) -> None:
    """Reads the log up to an event."""
    while f'"event": "{event}"' not in (line := process.stderr.readline()):
        assert line, f"the server ended before {event}"


def is_accepting(port: int) -> bool:
    """Returns whether a new connection is accepted."""
    try:
        socket.create_connection(("127.0.0.1", port), SECONDS).close()
    except ConnectionError:
        return False
    return True


def ask(connection: http.client.HTTPConnection) -> None:
    connection.request("POST", "/echo", '{"q": "a"}', {"Content-Type": "application/json"})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_after_its_answers(number: signal.Signals) -> None:
    """Catches accepted requests that are lost, new ones that are accepted, and an exit code of a failure."""
    with started() as (process, connection):
        ask(connection)
        wait_for(process, "accepted")
        process.send_signal(number)
        wait_for(process, "stopping")
        while is_accepting(connection.port):  # the listening socket is closed right after the log says so
            pass
        process.stdin.write("x")
        process.stdin.flush()
        response = connection.getresponse()
        assert (response.status, response.headers["Connection"]) == (200, "close")
        assert response.read().startswith(b'{"texts":["A"]')
        assert process.wait(SECONDS) == 0
        assert process.stdout.read() == "closed 0\n"


def test_a_second_signal_ends_the_process_at_once() -> None:
    """Catches a server that cannot be ended while requests take long."""
    with started() as (process, connection):
        ask(connection)
        wait_for(process, "accepted")
        process.send_signal(signal.SIGTERM)
        wait_for(process, "stopping")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 128 + signal.SIGTERM


def test_a_hangup_reloads_models_and_keys(tmp_path: Path) -> None:
    """Catches a hangup that ends the server, and a damaged file of keys that locks everybody out."""
    keys = tmp_path / "keys"
    keys.write_text("")
    with started(keys) as (process, _):
        process.send_signal(signal.SIGHUP)
        wait_for(process, "reloaded")
        keys.write_text("damaged")
        process.send_signal(signal.SIGHUP)
        wait_for(process, "reload failed")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
        assert process.stdout.read() == "closed 1\n"


def test_a_used_port_is_told() -> None:
    """Catches a traceback where another program listens on the port."""
    with started() as (_, connection):
        command = [sys.executable, "-m", "transformer", "serve", "en-de", "--port", str(connection.port)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env={**os.environ})
        assert result.returncode == 2
        assert "cannot be used (Address already in use)" in result.stderr
        assert result.stderr.count("\n") == 1
