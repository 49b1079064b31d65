"""Servers of `benchmarks/serving/serving.py`, each in a process of its own, and the load on them."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WORKERS = 2
"""Cores of the run."""


@dataclass(frozen=True)
class Server:
    """A server with its setting.

    Attributes:
        name: Name in the result.
        program: File in `engines/`; empty for this project's server.
        workers: Translations that are computed at a time.
        threads: Threads of each of them.
    """

    name: str
    program: str = ""
    workers: int = WORKERS
    threads: int = 1


OURS = Server("transformer serve")
SERVERS = (
    OURS,
    Server("CTranslate2 per request, 2 x 1", "per_request.py"),
    Server("CTranslate2 per request, 1 x 2", "per_request.py", 1, WORKERS),
    Server("CTranslate2 batching, 2 x 1", "batching.py"),
    Server("CTranslate2 batching, 1 x 2", "batching.py", 1, WORKERS),
)
OPEN_LIMITS = """
log = "none"
preload = true
[limits]
concurrent = 0
per_minute = 0
connections = 4000
"""
"""Settings of ours: wrk is a single client, which must not be limited."""


class Servers:
    """Starts servers of one model.

    Args:
        folder: Folder for configurations and converted weights.
        model: Model folder.
        peers: Folder that `engines/setup.sh` made.
        sizes: Sizes of the model, as `sizes_of` returns them, with its weights in `folder`.
    """

    def __init__(self, folder: Path, model: Path, peers: Path, sizes: dict[str, Any]) -> None:
        self.folder, self.model, self.peers, self.sizes = folder, model.resolve(), peers, sizes
        (folder / "converted").mkdir()

    @contextmanager
    def running(self, server: Server, limits: str = "") -> Iterator[tuple[str, int]]:
        """Starts a server; yields its address and process number when it has translated a sentence.

        Args:
            server: The server.
            limits: Further lines of the table `[limits]` of ours.
        """
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with (self.folder / "server.log").open("ab") as log:
            process = subprocess.Popen(self._command(server, port, limits), stdout=log, stderr=log)
            try:
                address = f"http://127.0.0.1:{port}"
                self._await(address, process)
                yield address, process.pid
            finally:
                process.terminate()
                process.wait(60)

    def versions(self) -> dict[str, str]:
        """Returns the versions of the peers' packages, after one of them ran."""
        path = self.folder / "versions.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def _command(self, server: Server, port: int, limits: str) -> list[str]:
        if server == OURS:
            config = (
                f'port = {port}\nworkers = {server.workers}\n{OPEN_LIMITS}{limits}[models]\nen-de = "{self.model}"\n'
            )
            (self.folder / "serve.toml").write_text(config)
            return [sys.executable, "-m", "transformer", "serve", "--config", str(self.folder / "serve.toml")]
        order = {
            "weights": str(self.folder / "weights.safetensors"), "sizes": self.sizes, "precision": "int8",
            "tokenizer": str(self.model / "tokenizer.json"), "converted": str(self.folder / "converted"),
            "versions": str(self.folder / "versions.json"), "port": port,
            "workers": server.workers, "threads": server.threads, "request_threads": 4,
        }  # fmt: skip
        (self.folder / "order.json").write_text(json.dumps(order))
        python = self.peers / "ctranslate2" / "bin" / "python"
        return [str(python), str(HERE / "engines" / server.program), str(self.folder / "order.json")]

    def _await(self, address: str, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            try:
                post(address, body("Hello."))
            except OSError:  # not listening yet, or not ready
                time.sleep(0.1)
            else:
                return
        raise SystemExit(f"the server did not start; its log ends with:\n{self._end_of_log()}")

    def _end_of_log(self) -> str:
        return (self.folder / "server.log").read_text()[-2000:]


def body(texts: str | list[str], **options: Any) -> bytes:
    """Returns the body of a request to /translate."""
    return json.dumps({"q": texts, "source": "en", "target": "de", **options}, ensure_ascii=False).encode()


def post(address: str, data: bytes) -> dict[str, Any]:
    """Returns the answer of /translate."""
    request = urllib.request.Request(f"{address}/translate", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.loads(response.read())


def load(address: str, bodies: Path, connections: int, seconds: float) -> dict[str, float]:
    """Sends requests by wrk, each connection the next one as soon as it has an answer.

    Returns:
        Requests per second, latencies in milliseconds (median, 99th percentile, greatest),
        and the number of failed requests.
    """
    command = [
        "wrk", "--threads", str(min(2, connections)), "--connections", str(connections), "--duration", f"{seconds:g}s",
        "--timeout", "60s", "--script", str(HERE / "sentences.lua"), address, "--", str(bodies),
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    figures = json.loads(ended.stdout.strip().splitlines()[-1])
    return {"requests_per_second": figures.pop("requests") / figures.pop("seconds"), **figures}
