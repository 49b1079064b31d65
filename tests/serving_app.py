"""The server's application with a fake engine, on a real port of this machine."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from serving_fakes import FakeEngine
from transformer.runtime.frames import Frame, Kind
from transformer.runtime.worker import answer_requests
from transformer.serving.app import create_app
from transformer.serving.document_processes import DocumentProcesses
from transformer.serving.documents import Documents
from transformer.serving.engine import document_process
from transformer.serving.glossaries import Glossaries
from transformer.serving.metrics import ServerMetrics
from transformer.serving.operations import Services
from transformer.serving.settings import ServerSettings
from transformer.serving.translation import TranslationService

TEST_SECONDS = 60
"""Limit of every wait, far above what any of them takes."""


def read_documents_in_thread() -> socket.socket:
    """Starts a thread that reads and writes documents, and returns a socket that is connected to it."""
    ours, theirs = socket.socketpair()

    def answer() -> None:
        with theirs:
            theirs.sendall(Frame(Kind.STATUS, data=b'{"facts": {}}').encode())
            answer_requests(document_process.answer, theirs)

    threading.Thread(target=answer, daemon=True).start()
    return ours


def fake_services(
    engine: FakeEngine | None = None,
    processes: DocumentProcesses | None = None,
    **settings: Any,
) -> Services:
    """Returns what handlers use, with a fake engine.

    Args:
        engine: The engine.
        processes: Read and write documents; by default a thread does.
        settings: Settings of the server.
    """
    engine = engine or FakeEngine()
    chosen = ServerSettings(models={name: name for name in engine.models}, **settings)
    translation = TranslationService(engine, chosen)
    documents = Documents(
        translation,
        chosen,
        processes or DocumentProcesses(read_documents_in_thread, chosen.limits.document_read_seconds),
    )
    return Services(chosen, engine, translation, Glossaries(chosen), ServerMetrics(), documents)


class _Server(uvicorn.Server):
    """A server that ends the processes of documents with the event loop."""

    def __init__(self, config: uvicorn.Config, documents: Documents) -> None:
        super().__init__(config)
        self._documents = documents

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Same as `uvicorn.Server.shutdown`."""
        await super().shutdown(sockets)
        await self._documents.close()


@contextmanager
def running_app(services: Services) -> Iterator[str]:
    """Serves the application by a thread, and yields its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(services), lifespan="off", log_config=None, timeout_graceful_shutdown=5)
    server = _Server(config, services.documents)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(TEST_SECONDS)
        listener.close()
