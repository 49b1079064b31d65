"""The ASGI application: finds the operation of a request, checks limits and body, and answers."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from pydantic_core import to_json
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transformer.serving.access import Access, Client
from transformer.serving.bodies import read_body, validate
from transformer.serving.errors import STATUS, ServiceError
from transformer.serving.log import ServerLog
from transformer.serving.openapi import describe
from transformer.serving.operations import Call, ErrorForm, Operation, Services
from transformer.serving.routes import all_operations
from transformer.serving.routes.health import DOCUMENT, error_form
from transformer.serving.usage import USAGE, Usage

CLIENT_LEFT: Final = 499
"""Status in the log of a request whose client closed the connection before the answer."""
RECORD: Final = "transformer.record"
"""Key of the `RequestRecord` in the scope of a request."""


@dataclass
class RequestRecord:
    """Facts of a request that are logged.

    Attributes:
        route: Path of its operation; empty without one.
        status: HTTP status; 0 until the answer begins.
        usage: Work that it caused.
    """

    route: str = ""
    status: int = 0
    usage: Usage = field(default_factory=Usage)


def create_app(
    services: Services,
    access: Access | None = None,
    log: ServerLog | None = None,
    operations: Sequence[Operation] | None = None,
) -> ASGIApp:
    """Returns the application.

    Args:
        services: What handlers use.
        access: Identifies and limits clients; by default as the settings say.
        log: Where requests are logged; by default nowhere.
        operations: What clients can ask for; by default all interfaces.

    Raises:
        ConfigError: The file of keys or an address of a proxy in the settings is wrong.
    """
    settings = services.settings
    operations = all_operations(settings) if operations is None else operations
    access = access or Access(settings)
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    routes = [Route(path, _Endpoint(methods, services, access)) for path, methods in by_path.items()]
    app: ASGIApp = Router(routes, redirect_slashes=False, default=_NotFound(operations))
    if settings.cors:
        methods = ("GET", "POST", "PUT", "PATCH", "DELETE")
        app = CORSMiddleware(app, settings.cors, allow_methods=methods, allow_headers=["*"], max_age=3600)
    document = cache(lambda: to_json(describe(operations, settings.root_path)))
    return _LogMiddleware(app, services, log or ServerLog("none"), document)


class _LogMiddleware:
    """Middleware that records requests in log and metrics, and strips the root path of a reverse proxy."""

    def __init__(self, app: ASGIApp, services: Services, log: ServerLog, document: Callable[[], bytes]) -> None:
        self._app, self._services, self._log, self._document = app, services, log, document
        self._root = services.settings.root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        record = scope[RECORD] = RequestRecord()
        scope[DOCUMENT] = self._document
        record.usage.texts = [] if self._services.settings.log_texts else None
        USAGE.set(record.usage)
        if self._root and scope["path"].startswith(f"{self._root}/"):
            scope["path"] = scope["path"].removeprefix(self._root)
        begin = time.monotonic()
        self._services.metrics.begin_request()

        async def observed_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_extra_headers(scope, record.status)]
            await send(message)

        try:
            await self._app(scope, receive, observed_send)
        except Exception as error:
            self._log.failure("failure", error, route=record.route)
            if record.status:
                raise ConnectionAbortedError from None  # the answer cannot be completed
            await _error_response(ServiceError("internal", "the server failed"), error_form)(
                scope, receive, observed_send
            )
        finally:
            self._end(scope["method"], record, time.monotonic() - begin)

    def _end(self, method: str, record: RequestRecord, seconds: float) -> None:
        status = record.status or CLIENT_LEFT
        self._services.metrics.end_request(method, record.route, status, seconds)
        self._log.write(
            "request",
            method=method,
            route=record.route or "unknown",
            status=status,
            ms=round(1000 * seconds, 1),
            items=record.usage.items,
            tokens=record.usage.tokens,
            texts=record.usage.texts,
        )


class _NotFound:
    """Answers unknown paths with 404, in the form of the interface whose paths begin alike."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._forms: dict[str, ErrorForm] = {}
        for operation in operations:
            self._forms.setdefault(_first_part(operation.path), operation.error_form)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        form = self._forms.get(_first_part(scope["path"]), error_form)
        await _error_response(ServiceError("not_found", "the path does not exist"), form)(scope, receive, send)


class _Endpoint:
    """Dispatches the requests for one path by their method."""

    def __init__(self, operations: Mapping[str, Operation], services: Services, access: Access) -> None:
        self._operations, self._services, self._access = operations, services, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record: RequestRecord = scope[RECORD]
        record.route = next(iter(self._operations.values())).shown_path
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        operation = self._operations.get(method)
        if operation is None:
            allowed = {"Allow": ", ".join(sorted({*self._operations, "OPTIONS"}))}
            if method == "OPTIONS":
                await Response(status_code=204, headers=allowed)(scope, receive, send)
                return
            form = next(iter(self._operations.values())).error_form
            error = ServiceError("method_not_allowed", "the path has no such method")
            await _error_response(error, form, allowed)(scope, receive, send)
            return
        try:
            await self._answer(operation, Request(scope, receive), send)
        except ServiceError as error:
            if record.status:
                raise
            await _error_response(error, operation.error_form)(scope, receive, send)
        except ClientDisconnect:
            return

    async def _answer(self, operation: Operation, request: Request, send: Send) -> None:
        """Answers a request within the limits of its client."""
        if operation.is_open:
            await self._handle(operation, request, Client(self._access.address(request)), None, send)
            return
        model, limits = operation.request, self._services.settings.limits
        client = self._access.identify_early(request, operation)
        with self._access.admit(client.name if client else self._access.address(request)):
            values = {} if model is None else await read_body(request, operation, model, limits)
            client = client or self._access.identify(request, operation, str(values.get("api_key") or ""))
            body = None if model is None else validate(values, model)
            await self._handle(operation, request, client, body, send)

    async def _handle(self, operation: Operation, request: Request, client: Client, body: Any, send: Send) -> None:
        """Runs the handler and sends its answer, unless the client leaves before."""
        seconds = self._services.settings.limits.request_seconds
        call = Call(self._services, body, client.name, time.monotonic() + seconds, request, client.owner)

        async def work() -> None:
            try:
                async with asyncio.timeout(seconds):
                    result = await operation.handler(call)
            except TimeoutError:
                raise ServiceError("timeout", "the answer took too long; send less text") from None
            response = result if isinstance(result, Response) else _json_response(result, operation.success)
            await response(request.scope, request.receive, send)

        await _unless_disconnected(work(), request.receive)


async def _unless_disconnected(work: Awaitable[None], receive: Receive) -> None:
    """Runs work to its end; cancels it if the client closes the connection before.

    Raises:
        ClientDisconnect: The client has left.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        await task
    finally:
        watcher.cancel()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ServiceError):
            await task


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _json_response(value: Any, status: int) -> Response:
    content = b"" if status == 204 else to_json(value, by_alias=True, inf_nan_mode="null")
    return Response(content, status, media_type="application/json" if content else None)


def _error_response(error: ServiceError, form: ErrorForm, headers: Mapping[str, str] | None = None) -> Response:
    """Returns an error in the form of an interface."""
    headers = dict(headers or {})
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if error.code == "unauthorized":
        headers["WWW-Authenticate"] = "Bearer"
    return Response(to_json(form(error)), STATUS[error.code], headers, media_type="application/json")


def _extra_headers(scope: Scope, status: int) -> list[tuple[bytes, bytes]]:
    """Returns the headers of every answer; after `Expect: 100-continue`, a refusal also closes the connection."""
    headers = [(b"x-content-type-options", b"nosniff")]
    if status >= 400 and any(name == b"expect" for name, _ in scope["headers"]):
        headers.append((b"connection", b"close"))
    return headers


def _first_part(path: str) -> str:
    return path.split("/", 2)[1] if path.startswith("/") else ""
