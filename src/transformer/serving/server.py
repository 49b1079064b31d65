"""The server: listens on an address, and ends on signals without losing an accepted request."""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Generator
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from transformer.errors import ConfigError, TransformerError
from transformer.serving.access import Access
from transformer.serving.connections import LimitedProtocol, limited_protocol
from transformer.serving.interfaces import Engine
from transformer.serving.log import ServerLog
from transformer.serving.settings import ServerSettings

BACKLOG: Final = 2048
"""Connections that the operating system keeps until they are accepted."""
LAST_REQUESTS_SECONDS: Final = 0.5
"""Time after the signal to stop in which open connections may send a request that they had begun."""

ACCEPTED_AT_ONCE: Final = 16
"""Connections that are accepted before the first of them is counted, and may be refused."""
RESERVED_FILES: Final = 128
"""Open files beside connections: those of the processes of models, of logs, and of connections to be refused."""
SECONDS_BETWEEN_FAILURES: Final = 1.0
"""Minimum time between two logged failures of the event loop, which may come in thousands."""


def allow_connections(n: int) -> int:
    """Raises the limit on open files to what connections need, and returns how many of them the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = n + RESERVED_FILES
    if resource.RLIM_INFINITY != soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return n if soft == resource.RLIM_INFINITY else max(1, min(n, soft - RESERVED_FILES))


def bind(host: str, port: int) -> socket.socket:
    """Returns a socket that listens on an address.

    Raises:
        ConfigError: The address is wrong or in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off the delay of small packets (TCP_NODELAY) only if the protocol is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, TypeError, ValueError) as error:  # the last two: characters that no host has
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else "it is not an address"
        message = f"host={host!r} port={port} cannot be used ({reason}); choose others, port 0 for a free one"
        raise ConfigError(message) from error
    return listener


class StoppableServer(uvicorn.Server):
    """Serves an application on a socket until a signal.

    Args:
        app: The application.
        settings: Settings of the server.
        engine: Closed at the end.
        access: Reads its keys again on SIGHUP.
        log: Where starts, ends and failures are logged.
        on_stop: Function that ends work for which no client waits, called before the last requests are answered.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        engine: Engine,
        access: Access,
        log: ServerLog,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_stop = on_stop
        self._settings, self._engine, self._access, self._log = settings, engine, access, log
        config = uvicorn.Config(
            app,
            http=limited_protocol(settings.limits),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=ACCEPTED_AT_ONCE,  # asyncio accepts as many before it does anything else
            timeout_keep_alive=settings.limits.keep_alive_seconds,  # pyright: ignore[reportArgumentType]
            timeout_graceful_shutdown=settings.limits.shutdown_seconds,  # pyright: ignore[reportArgumentType]
        )
        super().__init__(config)
        self._reloading = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_failure, self._n_unlogged = 0.0, 0

    async def serve_and_close(self, listener: socket.socket) -> None:
        """Serves until a signal, answers what was accepted, and closes the engine."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._log_failure)
        try:
            await self._engine.open()
            if self._settings.watch_seconds:
                self._begin(self._watch())
            await self._serve([listener])
        finally:
            for task in self._tasks:
                task.cancel()
            await self._engine.close()
            self._log.write("stopped")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Prints the address when connections are accepted."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)
            host, port, *_ = listener.getsockname()
            address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            print(address, flush=True)
            self._log.write("started", address=address)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers what was accepted; connections are closed after their next answer."""
        self._log.write("stopping", connections=len(self.server_state.connections))
        self.lifespan.state["is_stopping"] = True
        for server in self.servers:
            server.close()
        for connection in self.server_state.connections:
            if isinstance(connection, LimitedProtocol):
                connection.close_after_answer()
        self._on_stop()
        deadline = time.monotonic() + LAST_REQUESTS_SECONDS
        while self.server_state.connections and time.monotonic() < deadline:
            await asyncio.sleep(LAST_REQUESTS_SECONDS / 20)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def handled_signals(self) -> Generator[None]:
        """Handles signals: SIGHUP reloads, a first SIGTERM or SIGINT ends the server, a second one the process."""

        def end(number: int, frame: Any) -> None:
            if self.should_exit:
                os._exit(128 + number)
            self.should_exit = True

        def reload(number: int, frame: Any) -> None:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._begin_reload)

        handlers = {signal.SIGINT: end, signal.SIGTERM: end, signal.SIGHUP: reload}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _log_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Logs a failure that no request has caused, such as too many open files; at most one a second."""
        if time.monotonic() < self._next_failure:
            self._n_unlogged += 1
            return
        fields = {"message": context["message"], "unlogged": self._n_unlogged or None}
        self._next_failure, self._n_unlogged = time.monotonic() + SECONDS_BETWEEN_FAILURES, 0
        if (error := context.get("exception")) is None:
            self._log.write("failure", **fields)
        else:
            self._log.failure("failure", error, **fields)

    def _begin_reload(self) -> None:
        self._begin(self._reload(with_keys=True))

    async def _reload(self, *, with_keys: bool) -> None:
        """Loads changed models again, and keys; after a failure, which is logged, what was loaded before stays."""
        async with self._reloading:
            try:
                if with_keys:
                    self._access.reload()
                    if self._access.refuses_all:
                        self._log.write("no keys", because="the file of keys is empty; every request is refused")
                await self._engine.reload()
            except TransformerError as error:
                self._log.write("reload failed", error=str(error))
            except Exception as error:
                self._log.failure("reload failed", error)
            else:
                if with_keys:
                    self._log.write("reloaded")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._settings.watch_seconds)
            await self._reload(with_keys=False)

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
