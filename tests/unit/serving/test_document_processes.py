"""Processes that read and write the server's documents: others are answered meanwhile, and their cost has a limit."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from random import Random

import pytest
import requests

from office_files import docx
from serving_app import TEST_SECONDS, fake_services, running_app
from serving_documents import PO, TRANSLATED, ask, begin, send, wait_for_state, wait_until
from transformer.serving.document_processes import DocumentProcesses
from transformer.serving.engine import document_process
from transformer.serving.settings import Limits


@pytest.fixture
def processes(request: pytest.FixtureRequest) -> Iterator[DocumentProcesses]:
    """One forked process, run by a thread as the process of documents does; a parameter limits its memory."""
    threads: list[threading.Thread] = []

    def serve(stream: socket.socket) -> None:
        with stream:
            document_process.serve(stream, {"documents": 1, "memory_bytes": getattr(request, "param", 256 << 20)})

    def start() -> socket.socket:
        ours, theirs = socket.socketpair()
        threads.append(threading.Thread(target=serve, args=[theirs], daemon=True))
        threads[-1].start()
        return ours

    yield DocumentProcesses(start, TEST_SECONDS)
    for thread in threads:
        thread.join(TEST_SECONDS)


@pytest.fixture
def address(processes: DocumentProcesses) -> Iterator[str]:
    """A server that has read a document."""
    with running_app(fake_services(processes=processes, limits=Limits(document_characters=10**7))) as url:
        assert send(url).status_code == 200
        yield url


def stop(processes: DocumentProcesses) -> int:
    """Stops the process, as one that works for a long time, and returns its id."""
    (pid,) = processes.pids
    os.kill(pid, signal.SIGSTOP)
    return pid


def test_others_are_answered_while_a_file_is_read(address: str, processes: DocumentProcesses) -> None:
    """Catches a file that is read by the process that answers clients."""
    pid = stop(processes)
    handle = begin(address)
    assert requests.get(f"{address}/live", timeout=TEST_SECONDS).ok
    text = {"q": "a dog", "source": "en", "target": "de"}
    assert requests.post(f"{address}/translate", json=text, timeout=TEST_SECONDS).json()["translatedText"] == "A DOG"
    assert ask(address, handle).json()["details"]["lines"] == 0
    os.kill(pid, signal.SIGCONT)
    wait_for_state(address, handle, "done")
    assert ask(address, handle, "/result").content == TRANSLATED


def test_a_slow_file_does_not_hold_up_others(address: str, processes: DocumentProcesses) -> None:
    """Catches the same with a file that takes its reader many seconds, whose deletion ends its process."""
    (pid,) = processes.pids
    handle = begin(address, b"Some *text* and [a](b) here.\n\n" * 40_000, "slow.md")
    wait_for_state(address, handle, "translating")
    assert requests.get(f"{address}/live", timeout=TEST_SECONDS).ok
    assert ask(address, handle).json()["details"]["lines"] == 0
    url = f"{address}/v2/document/{handle['document_id']}?document_key={handle['document_key']}"
    assert requests.delete(url, timeout=TEST_SECONDS).status_code == 204
    wait_until(lambda: processes.pids not in ([], [pid]))
    assert send(address).status_code == 200


def test_a_file_that_takes_too_long_is_given_up(address: str, processes: DocumentProcesses) -> None:
    """Catches a hostile file that occupies a process for ever, and one that takes the next file with it."""
    pid = stop(processes)
    processes.seconds = 0.05
    answer = send(address)
    assert (answer.status_code, "within 0.05 s; split it" in answer.json()["error"]) == (413, True)
    processes.seconds = TEST_SECONDS
    assert send(address).status_code == 200
    assert pid not in processes.pids


def test_a_killed_process_fails_its_file_alone(address: str, processes: DocumentProcesses) -> None:
    """Catches a file whose state never changes because its process has died."""
    pid = stop(processes)
    handle = begin(address)
    wait_for_state(address, handle, "translating")
    os.kill(pid, signal.SIGKILL)
    assert "too much memory" in wait_for_state(address, handle, "error")["error_message"]
    assert send(address).status_code == 200


@pytest.mark.parametrize("processes", [24 << 20], indirect=True)
def test_memory_has_a_limit(address: str) -> None:
    """Catches a small file that fills the memory of the machine."""
    random = Random(1)
    body = "".join(random.randbytes(40).hex() + " " * 8000 for _ in range(4500))  # not so regular that it is refused
    answer = send(address, docx(f"<!--{body}-->"), "bomb.docx")
    assert (answer.status_code, "too much memory" in answer.json()["error"]) == (413, True)
    assert send(address, PO).status_code == 200
