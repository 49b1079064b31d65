"""Stops and kills `transformer serve` under load: accepted requests are answered, and each with its own translation."""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import transformer
from samples import ROOT
from transformer.demo.corpus import load_phrasebook
from transformer.kernels.library import instruction_set

MODEL = ROOT / "models" / "en-de" / "transformer_model_en_de" / "bundle"
CLIENTS, WORKERS, LIMIT = 4, 2, 60
"""Concurrent clients; workers of the server; seconds after which a wait fails the test."""
IS_DETERMINISTIC = instruction_set() is None
"""Without the compiled kernels a translation may depend on the texts in its batch."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass
class Load:
    """Clients that each send lists of texts and compare the answers, until they are stopped.

    A client asks the server to confirm that it has accepted the request (`Expect: 100-continue`) before it sends the
    texts. A request that was not accepted is sent again; one that was accepted must be answered.

    Attributes:
        port: Port of the server.
        expected: Translation of each text.
        answered: Number of answers of each client.
        faults: Descriptions of lost or wrong answers.
    """

    port: int
    expected: dict[str, str]
    answered: list[int] = field(default_factory=lambda: [0] * CLIENTS)
    faults: list[str] = field(default_factory=list)
    is_stopped: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Generator[None]:
        """Runs the clients."""
        threads = [threading.Thread(target=self._run_client, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.is_stopped.set()
            for thread in threads:
                thread.join()

    def await_answers(self, more: int) -> None:
        """Waits until each client has had so many more answers."""
        goals = [count + more for count in self.answered]
        await_true(
            lambda: self.faults or all(count >= goal for count, goal in zip(self.answered, goals, strict=True)),
            f"answers; there are {self.answered}, {goals} are awaited",
        )
        assert self.faults == []

    def _run_client(self, number: int) -> None:
        draw = random.Random(number)
        while not self.is_stopped.is_set():
            texts = draw.choices(list(self.expected), k=draw.choice((1, 1, 1, 20)))
            while (accepted := self._accepted(texts)) is None and not self.is_stopped.wait(0.02):
                pass
            if accepted is None:
                return
            try:
                with accepted:
                    answer = finish(accepted, texts)
            except (OSError, http.client.HTTPException) as error:
                self.faults.append(f"lost: {type(error).__name__} {error}")
                continue
            if answer != [self.expected[text] for text in texts]:
                self.faults.append(f"{texts[:2]}: {str(answer)[:300]}")
            self.answered[number] += 1

    def _accepted(self, texts: list[str]) -> socket.socket | None:
        """Sends the head of a request; returns its connection once the server has accepted it."""
        connection = None
        try:
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)
            connection.sendall(
                b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body(texts))
            )
            received = b""
            while len(received) < len(CONTINUE) and (part := connection.recv(len(CONTINUE) - len(received))):
                received += part
            if received == CONTINUE:
                return connection
            if received and not received.startswith(b"HTTP/1.1 503"):
                self.faults.append(f"instead of 100: {received!r}")
        except OSError:  # the server is not listening
            pass
        if connection is not None:
            connection.close()
        return None


def body(texts: list[str]) -> bytes:
    """Returns the body of a request."""
    return json.dumps({"q": texts, "source": "en", "target": "de"}).encode()


def finish(connection: socket.socket, texts: list[str]) -> object:
    """Sends the texts of an accepted request and returns their translations, or the error."""
    connection.sendall(body(texts))
    response = http.client.HTTPResponse(connection)
    response.begin()
    content = json.loads(response.read())
    return content.get("translatedText", content)


def await_true(condition: Callable[[], object], what: str) -> None:
    """Waits for a condition."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


class Server:
    """A server in a process of its own, whose limits do not count the clients of a test as one that sends too much."""

    def __init__(self, folder: Path, port: int) -> None:
        config, self.log = folder / "serve.toml", folder / "log"
        config.write_text(
            f"port = {port}\nworkers = {WORKERS}\npreload = true\ndeterministic = {json.dumps(IS_DETERMINISTIC)}\n"
            f'[models]\nen-de = "{MODEL}"\n[limits]\nper_minute = 0\nconcurrent = 0\n'
        )
        command = [sys.executable, "-m", "transformer", "serve", "--config", str(config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        await_true(lambda: self.process.poll() is not None or is_ready(port), "the start")
        assert self.process.poll() is None, self.log.read_text()

    def terminate(self) -> int:
        """Stops the server by SIGTERM; returns its exit status."""
        self.process.terminate()
        return self.process.wait(LIMIT)

    def workers(self) -> list[int]:
        """Returns the process numbers of the workers, which have no children."""
        return [pid for pid in descendants(self.process.pid) if not children(pid)]


def children(pid: int) -> list[int]:
    """Returns the children of a process."""
    pids: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids += map(int, path.read_text().split())
        except OSError:  # the thread ended
            continue
    return pids


def descendants(pid: int) -> list[int]:
    """Returns all processes below one."""
    pids = children(pid)
    for child in pids:
        pids += children(child)
    return pids


def is_ready(port: int) -> bool:
    """Whether the server accepts requests."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    """Returns texts and their translations by the command line's translator."""
    texts = sorted({source for source, _ in load_phrasebook().test})[:100]
    with closing(transformer.load(MODEL, workers=1, deterministic=IS_DETERMINISTIC)) as translator:
        return {text: result.text for text, result in zip(texts, translator.translations(texts), strict=True)}


@pytest.fixture
def port() -> int:
    """Returns a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize("times", [2, pytest.param(50, marks=pytest.mark.soak)])
def test_sigterm_under_load(tmp_path: Path, expected: dict[str, str], port: int, times: int) -> None:
    """Catches an accepted request that is lost when the server stops, and a server that does not stop."""
    load = Load(port, expected)
    with load.running():
        for _ in range(times):
            server = Server(tmp_path, port)
            load.await_answers(2)
            assert server.terminate() == 0, server.log.read_text()
    assert load.faults == []


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_workers_under_load(tmp_path: Path, expected: dict[str, str], port: int, times: int) -> None:
    """Catches texts that are lost with their worker, answers for other clients, and workers that stay dead."""
    load = Load(port, expected)
    draw = random.Random(1)
    server = Server(tmp_path, port)
    try:
        with load.running():
            for _ in range(times):
                await_true(lambda: len(server.workers()) == WORKERS, "the workers")
                load.await_answers(1)
                os.kill(draw.choice(server.workers()), signal.SIGKILL)
                load.await_answers(2)
        assert load.faults == []
    finally:
        assert server.terminate() == 0, server.log.read_text()
