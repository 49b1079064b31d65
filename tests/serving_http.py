"""A real server in a thread, with an engine in the process, for tests of the server."""

import asyncio
import http.client
import io
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from starlette.responses import StreamingResponse

from serving_fakes import FakeEngine
from transformer.serving.access import Access
from transformer.serving.app import create_app
from transformer.serving.interfaces import Item, Job
from transformer.serving.log import ServerLog
from transformer.serving.metrics import ServerMetrics
from transformer.serving.operations import Call, Operation, Services
from transformer.serving.routes import health
from transformer.serving.server import StoppableServer, bind
from transformer.serving.settings import Limits, ServerSettings
from transformer.serving.usage import CountedEngine

SECONDS = 60
"""Time limit of everything that a test waits for."""


class Echo(BaseModel):
    """Request of the route of these tests."""

    q: str | list[str] = ""
    n: int = 1
    pairs: dict[str, str] | None = None
    api_key: str = ""


async def echo(call: Call) -> dict[str, Any]:
    """Translates the texts by the engine."""
    texts = [call.body.q] if isinstance(call.body.q, str) else call.body.q
    job = Job("en-de", "translate", [Item(text) for text in texts], client=call.client)
    results = await call.services.engine.run(job)
    return {"texts": [result["text"] for result in results], "client": call.client, "owner": call.owner}


async def stream(call: Call) -> StreamingResponse:
    """Continues a text without end, as long as the engine does."""
    parts = call.services.engine.stream(Job("tiny-gpt", "generate", [Item("a")], client=call.client))

    async def events() -> AsyncIterator[str]:
        async with aclosing(parts):
            async for part in parts:
                yield part["text"]

    return StreamingResponse(events())


async def fail(call: Call) -> None:
    """Fails as a handler with a mistake does."""
    raise RuntimeError("a secret text")


OPERATIONS = (
    *health.OPERATIONS,
    Operation(
        "POST", "/echo", "Translate", echo, health.error_form,
        request=Echo, accepts=("json", "form", "multipart", "query"), interface="LibreTranslate",
    ),
    Operation("POST", "/v1/echo", "Translate", echo, lambda error: {"error": {"message": error.message}},
              request=Echo, interface="OpenAI"),
    Operation("GET", "/v1/stream", "Generate", stream, health.error_form, media_type="text/plain"),
    Operation("GET", "/fail", "Fail", fail, health.error_form),
)  # fmt: skip


@dataclass
class RunningServer:
    """A server that answers in another thread.

    Attributes:
        port: Port on 127.0.0.1.
        engine: Engine of the server; its methods belong to the loop.
        server: The server.
        loop: Event loop of the server.
        access: Limits of clients.
        log: What was logged so far.
    """

    port: int
    engine: FakeEngine
    server: StoppableServer
    loop: asyncio.AbstractEventLoop
    access: Access
    log: io.StringIO

    def connect(self) -> socket.socket:
        """Opens a connection with a time limit."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, Any]:
        """Sends a request on a connection of its own; a body that is no text is sent as JSON."""
        headers = dict(headers or {})
        if body is not None and not isinstance(body, str | bytes):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)) as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
            is_json = response.headers.get("content-type") == "application/json"
            return response.status, response.headers, json.loads(content) if is_json else content

    def call(self, function: Any, *arguments: Any) -> None:
        """Calls a function in the event loop."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def wait_until(self, is_true: Any) -> None:
        """Waits until a condition holds."""
        for _ in range(SECONDS * 200):
            if is_true():
                return
            threading.Event().wait(0.005)
        raise AssertionError("the condition did not come true")


@contextmanager
def running_server(
    *,
    engine: FakeEngine | None = None,
    operations: Sequence[Operation] | None = OPERATIONS,
    services: Any = None,
    **settings: Any,
) -> Iterator[RunningServer]:
    """Runs a server with the given settings until the end of the context."""
    limits = Limits(**settings.pop("limits", {}))
    chosen = ServerSettings(models={"en-de": "en-de"}, port=0, log="json", limits=limits, **settings)
    engine = engine or FakeEngine()
    counted, metrics, stream = CountedEngine(engine), ServerMetrics(), io.StringIO()
    metrics.register_engine(counted)
    access, log = Access(chosen), ServerLog("json", stream)
    app_services = services or Services(chosen, counted, None, None, metrics, None)  # pyright: ignore[reportArgumentType]
    app = create_app(app_services, access, log, operations)
    server = StoppableServer(app, chosen, counted, access, log)
    listener = bind("127.0.0.1", 0)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.serve_and_close(listener)))
    thread.start()
    try:
        running = RunningServer(listener.getsockname()[1], engine, server, loop, access, stream)
        running.wait_until(lambda: server.started)
        yield running
    finally:
        loop.call_soon_threadsafe(engine.gate.set)
        server.should_exit = True
        thread.join(SECONDS)
        assert not thread.is_alive()
        loop.close()
