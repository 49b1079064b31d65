"""Puts the parts of the server together and runs it."""

import asyncio
import contextlib
from dataclasses import replace
from functools import partial

from transformer.serving.access import Access
from transformer.serving.app import create_app
from transformer.serving.document_processes import DocumentProcesses
from transformer.serving.documents import AT_ONCE, Documents
from transformer.serving.engine.engine import ProcessEngine
from transformer.serving.glossaries import Glossaries
from transformer.serving.log import ServerLog
from transformer.serving.metrics import ServerMetrics
from transformer.serving.operations import Services
from transformer.serving.server import StoppableServer, allow_connections, bind
from transformer.serving.settings import ServerSettings
from transformer.serving.translation import TranslationService
from transformer.serving.usage import CountedEngine


def run(settings: ServerSettings) -> None:
    """Serves until SIGTERM or SIGINT.

    Raises:
        ConfigError: The address or the folder of glossaries cannot be used, or the file of keys cannot be read.
        BundleError: A model of the settings does not exist.
    """
    access, log, metrics = Access(settings), ServerLog(settings.log), ServerMetrics()
    glossaries = Glossaries(settings)
    listener = bind(settings.host, settings.port)
    connections = allow_connections(settings.limits.connections)
    if connections < settings.limits.connections:
        log.write("fewer connections", connections=connections, because="the system limits open files (ulimit -Hn)")
        settings = replace(settings, limits=replace(settings.limits, connections=connections))
    engine = ProcessEngine(settings, metrics)
    engine.start()
    counted = CountedEngine(engine)
    metrics.register_engine(counted)
    translation = TranslationService(counted, settings)
    limits = settings.limits
    start = partial(engine.spawn, {"documents": AT_ONCE, "memory_bytes": limits.document_memory_mb * 10**6})
    documents = Documents(translation, settings, DocumentProcesses(start, limits.document_read_seconds), log)
    services = Services(settings, counted, translation, glossaries, metrics, documents)
    app = create_app(services, access, log)
    server = StoppableServer(app, settings, counted, access, log, documents.stop)

    async def serve() -> None:
        try:
            await server.serve_and_close(listener)
        finally:
            await documents.close()

    with contextlib.closing(listener), server.handled_signals():
        asyncio.run(serve())
