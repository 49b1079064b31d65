"""The server's access to the processes that read and write documents."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any

from transformer.runtime.pool import MAX_ATTEMPTS
from transformer.serving.engine.process import ModelProcess, ProcessEndedError
from transformer.serving.errors import ServiceError


class DocumentProcesses:
    """Processes that read and write documents, started with the first one.

    Hostile files cost them time and memory that the process which answers clients does not share.

    Args:
        start: Function that starts them and returns a socket, see `transformer.serving.engine.document_process.serve`.
        seconds: Time in which a request must be answered; then its process is replaced.
    """

    def __init__(self, start: Callable[[], socket.socket], seconds: float) -> None:
        self._start, self.seconds = start, seconds
        self._process: ModelProcess | None = None
        self._starting = asyncio.Lock()

    @property
    def pids(self) -> list[int]:
        """Ids of the running processes."""
        return [] if self._process is None else self._process.workers

    async def ask(self, message: Mapping[str, Any], content: bytes) -> Mapping[str, Any]:
        """Returns the result of a request, see `transformer.serving.engine.document_process.answer`.

        If the caller is cancelled, the process that works on it is replaced.

        Raises:
            ServiceError: The document is wrong, takes too long, or needs too much memory.
        """
        for _ in range(MAX_ATTEMPTS):
            process = await self._connected()
            answer = process.request(message, content)
            try:
                async with asyncio.timeout(self.seconds):
                    result = await answer.next()
            except TimeoutError:
                problem = f"the file could not be read or written within {self.seconds:g} s; split it"
                raise ServiceError("too_large", problem, param="file") from None
            except ProcessEndedError:
                if process.has_ended:
                    continue
                problem = "the file needs too much memory, or cannot be read; split it"
                raise ServiceError("too_large", problem, param="file") from None
            finally:
                answer.kill()
            if error := result.get("error"):
                raise ServiceError(error["code"], error["message"], param=error["param"])
            return result
        raise ServiceError("unavailable", "documents cannot be read at the moment", retry_after=1.0)

    async def close(self) -> None:
        """Ends the processes."""
        if self._process is not None:
            await self._process.close()

    async def _connected(self) -> ModelProcess:
        async with self._starting:
            if self._process is None or self._process.has_ended:
                try:
                    self._process = await ModelProcess.connect(self._start())
                except ProcessEndedError as error:
                    raise ServiceError(
                        "unavailable", "documents cannot be read at the moment", retry_after=1.0
                    ) from error
            return self._process
