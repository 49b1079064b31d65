"""The server's connection to the spawner."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final, cast

from transformer.errors import BundleError
from transformer.serving.engine.host_client import END_SECONDS, ProcessEndedError
from transformer.serving.engine.messages import Message, control_pair, receive_control, send_control

LOGGER: Final = logging.getLogger("transformer.serving")
START_SECONDS: Final = 120
"""Maximum time until the first spawner has described a model."""
ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
) | {"TOKENIZERS_PARALLELISM": "false"}
"""Environment of the spawner: a process with several threads cannot be forked safely."""


class SpawnerClient:
    """Starts the spawner, and starts it again when it is needed after it ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._numbers = count()

    def start(self, paths: Sequence[str]) -> list[Mapping[str, Any]]:
        """Starts the process and returns the facts of models, see `describe`; there must be no event loop yet.

        Raises:
            BundleError: A path does not lead to a model.
            RuntimeError: The process does not answer.
        """
        control = self._start()
        control.settimeout(START_SECONDS)
        try:
            return [self._describe_now(control, path) for path in paths]
        except TimeoutError as error:
            raise RuntimeError(f"the spawner process did not answer within {START_SECONDS} s") from error
        finally:
            control.setblocking(False)

    def open(self) -> None:
        """Joins the running event loop."""
        if self._control is not None:
            asyncio.get_running_loop().add_reader(self._control, self._read)

    async def describe(self, path: str) -> Mapping[str, Any]:
        """Returns the facts of a model, see `describe`.

        Raises:
            BundleError: The path does not lead to a model.
            ProcessEndedError: The spawner died twice.
        """
        for attempt in (1, 2):
            number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
            self._waiting[number] = answer
            try:
                self._send({"type": "describe", "id": number, "path": path})
                return _facts(await answer)
            except ProcessEndedError:
                if attempt == 2:
                    raise
            finally:
                self._waiting.pop(number, None)
        raise AssertionError("unreachable")

    def load(self, message: Message) -> socket.socket:
        """Starts a host that loads a model, and returns a socket for its control messages.

        Args:
            message: Settings, see `run_host`.

        Raises:
            ProcessEndedError: The spawner could not be started.
        """
        ours, theirs = control_pair()
        ours.setblocking(False)
        try:
            self._send({"type": "load", **message}, theirs)
        except ProcessEndedError:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    async def close(self) -> None:
        """Ends the process."""
        process = self._process
        self._disconnect()
        if process is not None:
            await asyncio.to_thread(_wait, process)

    def stop(self) -> None:
        """Same as `close`, without an event loop."""
        process, control = self._process, self._control
        self._process = self._control = None
        if control is not None:
            control.close()
        if process is not None:
            _wait(process)

    def _start(self) -> socket.socket:
        ours, theirs = control_pair()
        command = [sys.executable, "-m", "transformer.serving.engine.spawner", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | ONE_THREAD,
            )
        self._control = ours
        return ours

    def _describe_now(self, control: socket.socket, path: str) -> Mapping[str, Any]:
        try:
            send_control(control, {"type": "describe", "id": 0, "path": path})
            received = receive_control(control)
        except ConnectionError:
            received = None
        if received is None:
            raise RuntimeError("the spawner process ended; see its output")
        return _facts(received[0])

    def _send(self, message: Message, passed: socket.socket | None = None) -> None:
        """Sends a control message, if necessary to a new process."""
        for _ in range(2):
            if self._control is None:
                self._start().setblocking(False)
                self.open()
            try:
                send_control(cast("socket.socket", self._control), message, passed)
            except OSError:
                self._lost()
            else:
                return
        raise ProcessEndedError("the spawner process cannot be started")

    def _read(self) -> None:
        """Reads one message; the event loop calls it again while there are more."""
        control = cast("socket.socket", self._control)
        with suppress(BlockingIOError):
            received = receive_control(control)
            if received is None:
                self._lost()
            elif not (answer := self._waiting[received[0]["id"]]).done():
                answer.set_result(received[0])

    def _lost(self) -> None:
        LOGGER.error("the spawner process ended; it is started again when it is needed")
        process = self._process
        self._disconnect()
        if process is not None:
            process.kill()  # it has closed its socket, but may not have ended yet
            process.wait()

    def _disconnect(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
        self._process = self._control = None
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ProcessEndedError("the spawner process ended"))


def _facts(answer: Message) -> Mapping[str, Any]:
    if "problem" in answer:
        raise BundleError(answer["problem"])
    return answer["facts"]


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Waits for a process whose socket was closed, and kills it if it does not end."""
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
