"""Starts and ends of the server as a process of its own, with an engine without models."""

import asyncio
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from serving_fakes import FakeEngine
from serving_http import SECONDS
from transformer.serving.access import Access
from transformer.serving.keys import add_key
from transformer.serving.log import ServerLog
from transformer.serving.server import RESERVED_FILES, StoppableServer
from transformer.serving.settings import ServerSettings

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
app = create_app(Services(settings, engine, None, None, ServerMetrics(), None), access, log, OPERATIONS)
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
    add_key(keys, "a")
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


def test_connections_stay_below_the_limit_on_open_files() -> None:
    """Catches connections beyond the limit on open files: nothing is answered, and the log fills the disk."""
    program = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (100, {RESERVED_FILES + 20}))\n"
        "from transformer.serving.run import run\n"
        "from transformer.serving.settings import ServerSettings\n"
        "run(ServerSettings(models={}, port=0, log='json'))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with ExitStack() as stack:
        stack.callback(process.communicate)
        stack.callback(process.kill)
        port = int(process.stdout.readline().rpartition(":")[2])
        for _ in range(200):
            idle = stack.enter_context(socket.socket())
            idle.setblocking(False)
            idle.connect_ex(("127.0.0.1", port))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        stack.callback(connection.close)
        connection.request("GET", "/live")
        assert connection.getresponse().status == 200
        process.send_signal(signal.SIGTERM)
        events = [json.loads(line) for line in process.stderr]
    assert events[0]["event"] == "fewer connections"
    assert events[0]["connections"] == 20
    assert "failure" not in {event["event"] for event in events}


async def _never_called(*_: object) -> None:
    raise AssertionError


def test_failures_of_the_event_loop_are_logged_once_a_second() -> None:
    """Catches thousands of equal lines a second, and failures that are not logged at all."""
    stream = io.StringIO()
    engine, settings, log = FakeEngine(), ServerSettings(models={}), ServerLog("json", stream)
    server = StoppableServer(_never_called, settings, engine, Access(settings), log)
    with closing(asyncio.new_event_loop()) as loop:
        for _ in range(1000):
            server._log_failure(loop, {"message": "accept", "exception": OSError()})
        server._next_failure = 0.0
        server._log_failure(loop, {"message": "another"})
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["message"], first["error"]) == ("accept", "OSError")
    assert (second["message"], second["unlogged"]) == ("another", 999)
