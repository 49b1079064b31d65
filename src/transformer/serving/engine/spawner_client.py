"""The server's connection to the spawner."""

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from transformer.errors import BundleError
from transformer.runtime.frames import RECEIVED_BYTES, Decoder
from transformer.runtime.pool import MAX_ATTEMPTS
from transformer.serving.engine.process import END_SECONDS, Message, ModelProcess, ProcessEndedError
from transformer.serving.engine.starting import Settings, control_pair, send_settings

LOGGER: Final = logging.getLogger("transformer.serving")
START_SECONDS: Final = 120
"""Maximum time until the first spawner has described a model."""
ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
) | {"TOKENIZERS_PARALLELISM": "false"}
"""Environment of the spawner: a process with several threads cannot be forked safely."""


class Spawner:
    """Starts the spawner process, and restarts it on demand."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self, paths: Sequence[str]) -> list[Mapping[str, Any]]:
        """Starts the process and returns the facts of models, see `describe`; there need not be an event loop yet.

        Raises:
            BundleError: A path does not lead to a model.
            RuntimeError: The process does not answer.
        """
        return [self._describe_now(path) for path in paths]

    async def describe(self, path: str) -> Mapping[str, Any]:
        """Returns the facts of a model, see `describe`; if the process dies meanwhile, another one is asked.

        Raises:
            BundleError: The path does not lead to a model.
            ProcessEndedError: The process died each time.
        """
        for _ in range(MAX_ATTEMPTS - 1):
            with suppress(ProcessEndedError):
                return await self._describe(path)
        return await self._describe(path)

    async def _describe(self, path: str) -> Mapping[str, Any]:
        return await (await ModelProcess.connect(self.spawn({"path": path}))).facts

    def spawn(self, settings: Settings) -> socket.socket:
        """Starts the process of a model, and returns a socket that is connected to it.

        Args:
            settings: Settings, see `transformer.serving.engine.model_process.run`.

        Raises:
            ProcessEndedError: The spawner could not be started.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            for _ in range(2):
                try:
                    send_settings(self._control or self._start(), settings, theirs)
                except OSError:
                    LOGGER.exception("the spawner process ended; it is started again")
                    self.stop()
                else:
                    return ours
        ours.close()
        raise ProcessEndedError("the spawner process cannot be started")

    def stop(self) -> None:
        """Ends the process, and kills it if it does not end."""
        process, control = self._process, self._control
        self._process = self._control = None
        if control is not None:
            control.close()
        if process is not None:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> socket.socket:
        self._control, theirs = control_pair()
        command = [sys.executable, "-m", "transformer.serving.engine.spawner", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | ONE_THREAD,
            )
        return self._control

    def _describe_now(self, path: str) -> Mapping[str, Any]:
        decoder = Decoder()
        with self.spawn({"path": path}) as stream:
            stream.settimeout(START_SECONDS)
            try:
                while data := stream.recv(RECEIVED_BYTES):
                    for frame in decoder.feed(data):
                        status: Message = json.loads(frame.data)
                        if "problem" in status:
                            raise BundleError(status["problem"])
                        if "facts" in status:
                            return status["facts"]
            except TimeoutError as error:
                raise RuntimeError(f"the spawner process did not answer within {START_SECONDS} s") from error
        raise RuntimeError("the spawner process ended; see its output")
