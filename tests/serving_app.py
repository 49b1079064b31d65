"""The server's application with a fake engine, on a real port of this machine."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from serving_fakes import FakeEngine
from transformer.serving.app import create_app
from transformer.serving.documents import Documents
from transformer.serving.glossaries import Glossaries
from transformer.serving.metrics import ServerMetrics
from transformer.serving.operations import Services
from transformer.serving.settings import ServerSettings
from transformer.serving.translation import TranslationService

TEST_SECONDS = 60
"""Limit of every wait, far above what any of them takes."""


def fake_services(engine: FakeEngine | None = None, **settings: Any) -> Services:
    """Returns what handlers use, with a fake engine."""
    engine = engine or FakeEngine()
    chosen = ServerSettings(models={name: name for name in engine.models}, **settings)
    translation = TranslationService(engine, chosen)
    return Services(chosen, engine, translation, Glossaries(chosen), ServerMetrics(), Documents(translation, chosen))


@contextmanager
def running_app(services: Services) -> Iterator[str]:
    """Serves the application by a thread, and yields its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(services), lifespan="off", log_config=None, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(TEST_SECONDS)
        listener.close()
