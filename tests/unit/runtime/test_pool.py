"""The pool of processes: requests, answers in parts, and ends of processes."""

import os
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from queue import Queue
from signal import SIGKILL
from stat import S_ISSOCK
from threading import Thread

import pytest

from transformer.runtime.frames import MAX_BYTES, Channel, Decoder, Frame, Kind
from transformer.runtime.pool import CAN_FORK, Pool
from transformer.runtime.worker import Emit, Handler

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="processes are forked on Linux alone")
SECONDS = 60
"""Limit of a wait, far above what any of them takes."""


def count_up(request: bytes, emit: Emit) -> bytes:
    """Emits as many parts as the request says, or until it is cancelled; its result is their number."""
    number = 0
    while number < int(request) and emit(str(number).encode()):
        number += 1
    return str(number).encode()


@contextmanager
def running(answer: Handler, n: int = 1) -> Generator[tuple[Pool, "Queue[Frame]", list[list[int]]]]:
    """Runs a pool in a thread; yields it, its answers, and the ids of its processes after each change."""
    answers, pids = Queue[Frame](), list[list[int]]()
    pool = Pool(answer, n, answers.put, changed=pids.append)
    thread = Thread(target=pool.run)
    thread.start()
    try:
        yield pool, answers, pids
    finally:
        pool.stop()
        thread.join()


def test_an_answer_comes_in_parts_until_it_is_cancelled() -> None:
    """Catches parts of another request, a cancelled answer that goes on, and one that is cancelled after its end."""
    with running(count_up) as (pool, answers, _):
        pool.send(Frame(Kind.REQUEST, 1, b"2"))
        expected = [(Kind.PART, 1, b"0"), (Kind.PART, 1, b"1"), (Kind.RESULT, 1, b"2")]
        assert [tuple(answers.get(timeout=SECONDS)) for _ in range(3)] == expected
        pool.send(Frame(Kind.CANCEL, 1))
        pool.send(Frame(Kind.REQUEST, 2, b"1000000000"))
        assert answers.get(timeout=SECONDS) == (Kind.PART, 2, b"0")
        pool.send(Frame(Kind.CANCEL, 2))
        while (frame := answers.get(timeout=SECONDS)).kind == Kind.PART:
            pass
        assert frame.kind == Kind.RESULT
        assert int(frame.data) < 1_000_000_000


def sleep(request: bytes, emit: Emit) -> bytes:
    """Sleeps for as many seconds as the request says."""
    emit(b"")
    time.sleep(float(request))
    return request


def test_a_request_can_be_killed_and_one_that_waits_is_dropped() -> None:
    """Catches a process that hangs and keeps its place for ever, and a request that is begun although nobody waits."""
    with running(sleep) as (pool, answers, pids):
        pool.send(Frame(Kind.REQUEST, 1, b"0"))
        pool.send(Frame(Kind.REQUEST, 2, b"1000"))
        kinds = [answers.get(timeout=SECONDS)[:2] for _ in range(3)]
        assert kinds == [(Kind.PART, 1), (Kind.RESULT, 1), (Kind.PART, 2)]
        pool.send(Frame(Kind.REQUEST, 3, b"0"))
        pool.send(Frame(Kind.KILL, 3))
        assert answers.get(timeout=SECONDS) == (Kind.DIED, 3, b"")
        pool.send(Frame(Kind.REQUEST, 4, b"0"))
        pool.send(Frame(Kind.KILL, 2))
        kinds = [answers.get(timeout=SECONDS)[:2] for _ in range(3)]
        assert kinds == [(Kind.DIED, 2), (Kind.PART, 4), (Kind.RESULT, 4)]
        (first,), (), (second,) = pids
        assert first != second


def test_only_the_request_that_a_process_works_on_dies_with_it() -> None:
    """Catches a request that was only waiting for its process, and counts as one that may have killed it."""

    def die(request: bytes, emit: Emit) -> bytes:
        if request == b"bad":
            os.kill(os.getpid(), SIGKILL)
        return request

    with running(die) as (pool, answers, _):
        for key, request in enumerate((b"good", b"bad", b"good", b"good", b"good")):
            pool.send(Frame(Kind.REQUEST, key, request))
        kinds = [answers.get(timeout=SECONDS)[:2] for _ in range(5)]
    assert kinds == [(Kind.RESULT, 0), (Kind.DIED, 1), *((Kind.RESULT, key) for key in (2, 3, 4))]


def test_a_broken_frame_ends_its_process() -> None:
    """Catches a process that writes into its socket and stops all others."""

    def write(request: bytes, emit: Emit) -> bytes:
        if request == b"bad":
            for descriptor in range(3, 100):
                with suppress(OSError):
                    if S_ISSOCK(os.fstat(descriptor).st_mode):
                        os.write(descriptor, b"\xff" * 13)
            time.sleep(SECONDS)
        return request

    with running(write, 2) as (pool, answers, _):
        pool.send(Frame(Kind.REQUEST, 1, b"bad"))
        assert answers.get(timeout=SECONDS) == (Kind.DIED, 1, b"")
        pool.send(Frame(Kind.REQUEST, 2, b"good"))
        assert answers.get(timeout=SECONDS) == (Kind.RESULT, 2, b"good")


def test_frames_arrive_in_pieces_of_any_size() -> None:
    """Catches a frame that is lost at the edge of a piece, and a length that fills the memory."""
    frames = [Frame(Kind.REQUEST, 2**60, b"x" * 300), Frame(Kind.STATUS), Frame(Kind.PART, 3, b"\0")]
    data = b"".join(frame.encode() for frame in frames)
    for size in (1, 7, 13, len(data)):
        decoder = Decoder()
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        assert [frame for piece in pieces for frame in decoder.feed(piece)] == frames
    with pytest.raises(ValueError, match="too long"):
        Decoder().feed((MAX_BYTES + 1).to_bytes(4, "big") + bytes(9))


def test_a_channel_keeps_what_its_socket_does_not_take() -> None:
    """Catches bytes that are lost or doubled when the other process is slow."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender, receiver = Channel(ours), Channel(theirs)
        sent = [Frame(Kind.PART, key, os.urandom(100_000)) for key in range(20)]
        for frame in sent:
            sender.send(frame)
        assert sender.has_unsent
        received: list[Frame] = []
        while len(received) < len(sent):
            received += receiver.receive()
            sender.flush()
        assert received == sent
        ours.close()
        assert (receiver.receive(), receiver.is_closed) == ([], True)
