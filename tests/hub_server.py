"""A server on this machine with the interface of the Hugging Face Hub, and with its faults on request.

Small files come from the Hub itself, weights by a redirect from a storage under another host name, as on the Hub. The
test `test_the_server_is_like_the_hub` downloads from it with `huggingface_hub` alone.
"""

import hashlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".bin")


class HubServer:
    """Serves folders as repositories.

    Attributes:
        repositories: Folders by the names of their repositories.
        card: What the authors state of each model.
        requests: The requests that arrived: method, path, range and authorization.
        refusal: Status, code and headers with which everything is refused; None if nothing is.
        break_at: Number of bytes of a large file after which its connection is closed, once; None to send it whole.
        hold: Called before the second half of a large file is sent.
        damage: Whether large files are sent with a wrong first byte.
    """

    def __init__(self, repositories: dict[str, Path]) -> None:
        self.repositories = repositories
        self.card: dict[str, Any] = {"license": "cc-by-4.0", "language": ["en", "de"]}
        self.requests: list[tuple[str, str, str | None, str | None]] = []
        self.refusal: tuple[int, str, dict[str, str]] | None = None
        self.break_at: int | None = None
        self.hold: Callable[[], object] = lambda: None
        self.damage = False

        class Handler(_Handler):
            hub = self

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def paths(self, method: str = "GET") -> list[str]:
        """Returns the paths of the requests of a method, without the names of repositories and revisions."""
        return [path.rsplit(COMMIT, 1)[-1] for sent, path, _, _ in self.requests if sent == method]


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.hub, urlsplit(self.path).path
        hub.requests.append((self.command, path, self.headers["Range"], self.headers["Authorization"]))
        if hub.refusal is not None:
            status, code, headers = hub.refusal
            self._send(status, b"", {**headers, **({"X-Error-Code": code} if code else {})})
        elif path.startswith("/api/models/"):
            name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            self._describe(name, revision)
        elif path.startswith("/storage/"):
            folder, _, file = path.removeprefix("/storage/").partition("!")
            self._send_large((hub.repositories[folder.replace("--", "/")] / file).read_bytes())
        elif "/resolve/" in path:
            name, _, rest = path[1:].partition("/resolve/")
            self._resolve(name, rest.partition("/")[2])
        else:
            self._send(404, b"")

    def _describe(self, name: str, revision: str) -> None:
        if name not in self.hub.repositories:
            self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
        elif revision not in ("", "main", "v1", COMMIT):
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        else:
            folder = self.hub.repositories[name]
            siblings = [
                _sibling(file.relative_to(folder).as_posix(), file.read_bytes())
                for file in sorted(folder.rglob("*"))
                if file.is_file()
            ]
            facts = {"id": name, "sha": COMMIT, "siblings": siblings, "cardData": self.hub.card, "tags": []}
            self._send(200, json.dumps({**facts, "pipeline_tag": "translation"}).encode())

    def _resolve(self, name: str, file: str) -> None:
        path = self.hub.repositories[name] / file
        if not path.is_file():
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        content = path.read_bytes()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        if path.name.endswith(LARGE):
            location = f"http://localhost:{self.hub.port}/storage/{name.replace('/', '--')}!{file}"
            linked = {"X-Linked-Size": str(len(content)), "X-Linked-ETag": hashlib.sha256(content).hexdigest()}
            self._send(302, b"", {**headers, **linked, "Location": location})
        else:
            self._send(200, content, headers)

    def _send_large(self, content: bytes) -> None:
        """Sends a large file, from the start of the range that is asked for."""
        hub = self.hub
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        sent = (b"\xff" + content[1:] if hub.damage else content)[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(sent)))
        self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        if hub.break_at is not None:
            self.wfile.write(sent[: hub.break_at])
            hub.break_at, self.close_connection = None, True
            return
        half = len(sent) // 2
        self.wfile.write(sent[:half])
        self.wfile.flush()
        hub.hold()
        self.wfile.write(sent[half:])

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


def _sibling(name: str, content: bytes) -> dict[str, object]:
    facts = {"rfilename": name, "size": len(content)}
    if name.endswith(LARGE):
        lfs = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
        return {**facts, "blobId": "0" * 40, "lfs": lfs}
    return {**facts, "blobId": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()}
