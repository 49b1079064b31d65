"""Serves the inspector's page on this machine: tensors on request, and other passes of the same model."""

import json
import secrets
import sys
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from threading import Lock
from typing import Final, cast
from urllib.parse import parse_qs, urlsplit

from transformer.bundle import Bundle
from transformer.errors import ConfigError, DataError, TransformerError
from transformer.inspection.gradient_norms import step_norms, untrained_norms
from transformer.inspection.packing import Facts
from transformer.inspection.page import render
from transformer.inspection.page_data import PageData, page_data
from transformer.inspection.passes import Changes, Pass, record_pass

HOST: Final = "127.0.0.1"
KEPT_PASSES: Final = 4
"""Number of latest passes, beside the first one, that are kept; earlier ones are computed again when asked for."""
KNOWN_PASSES: Final = 1000
"""Number of passes that can be computed again."""
NO_PASS: Final = "this pass is no longer kept; change something and compute it again"
NO_TOKEN: Final = b"Open the address that transformer inspect printed; it holds the token of this page."
NO_PAGE: Final = b"There is no such page; open the address that transformer inspect printed."
LOST_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>No longer kept</title>
<p>This pass is not known, or no longer kept: transformer inspect was started anew, or many others were computed since.
<p><a href="/?token={token}">Open the first pass</a>, and make the changes again.
</html>
"""
MAX_REQUEST: Final = 1 << 20


class Inspector:
    """Passes of one model, the latest of which are kept.

    Args:
        bundle: Model in float32.
        text: Text of the first pass.
        target: Its translation; default: the model's own.
    """

    def __init__(self, bundle: Bundle, text: str, target: str | None = None) -> None:
        self.bundle = bundle
        self.text, self.target = text, target
        self._passes: dict[str, PageData] = {}
        self._inputs: dict[str, tuple[str, str | None, Changes]] = {}
        self._lock = Lock()
        self._unchanged: tuple[tuple[str, list[int]] | None, float] = None, 0.0
        self._compared: tuple[tuple[str, list[int]] | None, list[Facts]] = None, []
        self.first = self.record(text, target, Changes())

    def record(self, text: str, target: str | None, changes: Changes) -> str:
        """Records a pass and returns its name.

        Raises:
            TransformerError: The text or the changes do not fit the model.
        """
        name = secrets.token_hex(8)
        with self._lock:
            self._compute(name, text, target, changes)
            self._inputs[name] = text, target, changes
            for old in list(self._inputs)[1:-KNOWN_PASSES]:
                del self._inputs[old]
        return name

    def _compute(self, name: str, text: str, target: str | None, changes: Changes) -> None:
        recorded = record_pass(self.bundle, text, target, changes)
        this_model: Facts = {"name": "this model", "values": step_norms(recorded)}
        data = page_data(recorded, [this_model, *self._untrained(text, recorded)])
        facts: Facts = {
            **data.facts, "pass": name, "text": text, "target": target,
            "unchanged_loss": self._unchanged_loss(text, recorded, changes),
        }  # fmt: skip
        self._passes[name] = replace(data, facts=facts)
        for old in list(self._passes)[1:-KEPT_PASSES]:
            del self._passes[old]

    def _unchanged_loss(self, text: str, recorded: Pass, changes: Changes) -> float | None:
        """Returns the loss of the same text and labels without changes, if that was the latest pass without any."""
        key = text, recorded.labels.tolist()
        if changes == Changes():
            self._unchanged = key, float(recorded.loss)
            return None
        known, loss = self._unchanged
        return loss if known == key else None

    def _untrained(self, text: str, recorded: Pass) -> list[Facts]:
        """Returns the norms of untrained models, computed again only if the text or the labels have changed."""
        key = text, recorded.labels.tolist()
        if key != self._compared[0]:
            self._compared = key, untrained_norms(recorded, step_norms)
        return self._compared[1]

    def page(self, name: str) -> PageData:
        """Returns what a page shows of a pass, computed again if it is no longer kept.

        Raises:
            DataError: The pass is unknown.
        """
        if (kept := self._passes.get(name)) is not None:
            return kept
        with self._lock:
            if name not in self._passes:
                if name not in self._inputs:
                    raise DataError(NO_PASS)
                self._compute(name, *self._inputs[name])
            return self._passes[name]

    def tensor(self, name: str, index: int) -> bytes:
        """Returns the numbers of a tensor in little-endian float32; of a large table, the rows that the page shows.

        Raises:
            DataError: The pass is unknown.
            IndexError: It has no such tensor.
        """
        return self.page(name).numbers(index).tobytes()

    def slice(self, name: str, index: int, axis: int, place: int) -> bytes:
        """Returns one row (axis 0) or column (axis 1) of a tensor in little-endian float32.

        Raises:
            DataError: The pass is unknown.
            IndexError: It has no such tensor, row or column.
        """
        return self.page(name).slice(index, axis, place).tobytes()


class _UnknownPassError(Exception):
    """The address of a page names a pass that is not known."""


class InspectorServer(ThreadingHTTPServer):
    """A server for one user on this machine; every request needs the token of its address.

    Args:
        inspector: Passes to serve.
        port: Port; 0 chooses a free one.
    """

    daemon_threads = True

    def __init__(self, inspector: Inspector, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.inspector = inspector
        self.token = secrets.token_urlsafe(24)

    @property
    def address(self) -> str:
        """Address of the page, with the token."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Reports an error of a request, but not a browser that went away before the answer was sent."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "transformer", ""
    protocol_version = "HTTP/1.1"

    @property
    def _inspector_server(self) -> InspectorServer:
        return cast(InspectorServer, self.server)

    def do_GET(self) -> None:
        """Answers with the page or with a tensor."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Answers with the facts of a new pass."""
        self._answer(self._post)

    def _answer(self, method: Callable[[str, dict[str, list[str]]], tuple[bytes, str]]) -> None:
        try:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
        except ValueError:
            self._send(HTTPStatus.NOT_FOUND, NO_PAGE, "text/plain")
            return
        if not self._is_allowed(query):
            self._send(HTTPStatus.FORBIDDEN, NO_TOKEN, "text/plain")
            return
        try:
            body, kind = method(parts.path, query)
        except _UnknownPassError:
            page = LOST_PAGE.format(token=self._inspector_server.token)
            self._send(HTTPStatus.NOT_FOUND, page.encode(), "text/html; charset=utf-8")
        except TransformerError as error:
            self._send(HTTPStatus.BAD_REQUEST, json.dumps({"error": str(error)}).encode(), "application/json")
        except (KeyError, IndexError, TypeError, ValueError):
            self._send(HTTPStatus.NOT_FOUND, NO_PAGE, "text/plain")
        else:
            self._send(HTTPStatus.OK, body, kind)

    def _is_allowed(self, query: dict[str, list[str]]) -> bool:
        """Checks token, host and origin, so that no page of another site can ask."""
        hosts = {f"{name}:{self._inspector_server.server_port}" for name in (HOST, "localhost")}
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        has_token = secrets.compare_digest(
            "".join(query.get("token", [])).encode(), self._inspector_server.token.encode()
        )
        return has_token and host in hosts and origin in {None, *(f"http://{name}" for name in hosts)}

    def _get(self, path: str, query: dict[str, list[str]]) -> tuple[bytes, str]:
        inspector = self._inspector_server.inspector
        if path == "/":
            try:
                data = inspector.page("".join(query.get("pass", [])) or inspector.first)
            except DataError as error:
                raise _UnknownPassError from error
            page = render(data, token=self._inspector_server.token, limit=0)
            return page.encode(), "text/html; charset=utf-8"
        _, kind, name, index = path.split("/")
        if kind != "tensor":
            raise KeyError(kind)
        for axis, key in enumerate(("row", "column")):
            if key in query:
                return inspector.slice(name, int(index), axis, int(query[key][0])), "application/octet-stream"
        return inspector.tensor(name, int(index)), "application/octet-stream"

    def _post(self, path: str, query: dict[str, list[str]]) -> tuple[bytes, str]:
        del query
        length = int(self.headers.get("Content-Length", 0))
        if path != "/pass" or not 0 < length <= MAX_REQUEST:
            raise KeyError(path)
        inspector = self._inspector_server.inspector
        try:
            asked = json.loads(self.rfile.read(length))
            text, target = asked.get("text") or inspector.text, asked.get("target")
            changes = Changes(
                {str(name): [int(head) for head in heads] for name, heads in asked.get("mute_heads", {}).items()},
                [int(position) for position in asked.get("mask_source", [])],
                float(asked.get("temperature", 1.0)),
            )
        except (AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise ConfigError("the request is not a pass; reload the page") from error
        name = inspector.record(str(text), None if target is None else str(target), changes)
        return json.dumps(inspector.page(name).facts).encode(), "application/json"

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        if status != HTTPStatus.OK:  # a body that was not read would be taken for the next request
            self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing about requests."""
