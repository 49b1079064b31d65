"""Translates documents by the engine: a thread reads and writes them, and their lines go through the queue in parts."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent import futures
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from transformer.documents.document import Document
from transformer.documents.formats import Format
from transformer.errors import TransformerError
from transformer.pipelines.translation.documents import (
    DocumentOptions,
    DocumentReport,
    DocumentTranslator,
    pieces_of,
)
from transformer.pipelines.translation.results import EMPTY_ALTERNATIVE, UNSURE, Translation
from transformer.serving.errors import ServiceError
from transformer.serving.translation import TranslatedText, TranslateOptions, TranslationService
from transformer.text.languages import parse_language

CHUNK_LINES: Final = 64
"""Maximum number of lines of a document that wait in the queue as one request."""
CHUNK_CHARACTERS: Final = 10_000
"""Number of characters that end such a request."""
CHUNKS_AT_ONCE: Final = 2
"""Requests of a document that wait at a time, so that workers need not wait for the next one."""
SAMPLE_CHARACTERS: Final = 2000
"""Number of characters of a document by which its language is detected."""
CHECK_SECONDS: Final = 1.0
"""Interval in which a waiting thread looks whether its document was cancelled."""


@dataclass(frozen=True)
class DocumentRequest:
    """A document to translate, and how.

    Attributes:
        name: Name of the file, for messages.
        content: Its bytes.
        form: Its format.
        source: Tag of its language, or "auto".
        target: Tag of the language to translate to.
        options: Options of the translation of its lines.
        choice: Which segments are translated, and how they are marked.
        client: Client, for fairness.
        deadline: Value of `time.monotonic()` by which it must be translated.
        max_characters: Maximum number of characters to translate.
    """

    name: str
    content: bytes
    form: Format
    source: str
    target: str
    options: TranslateOptions
    choice: DocumentOptions
    client: str
    deadline: float
    max_characters: int


@dataclass
class Progress:
    """Progress of the translation of a document.

    Attributes:
        lines: Number of lines to translate; 0 until the document was read.
        done: Number of lines that were translated.
        characters: Number of characters that were translated.
    """

    lines: int = 0
    done: int = 0
    characters: int = 0


@dataclass
class DocumentJob:
    """Translation of one document.

    Args:
        request: The document.
        service: Translates its lines.
        executor: Threads in which documents are read and written.
        progress: Receives the progress.
    """

    request: DocumentRequest
    service: TranslationService
    executor: futures.Executor
    progress: Progress = field(default_factory=Progress)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _lines: asyncio.Task[Any] | None = None
    _is_cancelled: bool = False

    async def run(self) -> tuple[bytes, DocumentReport]:
        """Returns the translated document, and a report. If the caller is cancelled, waiting lines are dropped.

        Raises:
            ServiceError: The document is wrong or too large, no model translates its language, or the engine fails.
        """
        request = self.request
        try:
            document, sample = await self._in_thread(self._read)
            source = await self.service.source_language(sample, request.source, request.target, request.options)
            languages = parse_language(source) or source, parse_language(request.target) or request.target
            translate = partial(self._translate_from_thread, source)
            run = DocumentTranslator(translate, languages, options=request.choice)
            return await self._in_thread(partial(run, document, request.name))
        except TransformerError as error:
            message = str(error).replace("--all", "all=true")  # what the command calls the same option
            raise ServiceError("invalid_request", message, param="file") from error
        finally:
            self._is_cancelled = True  # a thread that is still at work ends at its next line
            if self._lines is not None:
                self._lines.cancel()

    async def _in_thread(self, function: Any) -> Any:
        return await self._loop.run_in_executor(self.executor, partial(copy_context().run, function))

    def _read(self) -> tuple[Document, str]:
        """Returns the document and the beginning of its text."""
        request = self.request
        source, target = parse_language(request.source) or "", parse_language(request.target) or ""
        document = request.form.parse(request.content, request.name).in_languages(source, target)
        lines = [line for segment in document.segments if request.choice.selects(segment)
                 for line in pieces_of(segment)]  # fmt: skip
        n_characters = sum(map(len, lines))
        if n_characters > request.max_characters:
            message = f"{n_characters:,} characters to translate are more than the limit of {request.max_characters:,}"
            raise ServiceError("too_large", f"{message}; split the file", param="file")
        self.progress.lines = len(lines)
        return document, " ".join(lines[:SAMPLE_CHARACTERS])[:SAMPLE_CHARACTERS]

    def _translate_from_thread(self, source: str, lines: Sequence[str]) -> list[Translation]:
        """Translates lines by the event loop, and waits for it in this thread."""
        if self._is_cancelled:
            raise futures.CancelledError
        future = asyncio.run_coroutine_threadsafe(self._translate(lines, source), self._loop)
        while not futures.wait([future], CHECK_SECONDS).done:
            if self._is_cancelled:
                future.cancel()
                raise futures.CancelledError
        return future.result()

    async def _translate(self, lines: Sequence[str], source: str) -> list[Translation]:
        if self._is_cancelled:
            raise asyncio.CancelledError
        self._lines = asyncio.current_task()
        translations: list[Translation] = []
        running: deque[asyncio.Task[list[Translation]]] = deque()
        try:
            for chunk in _chunks(lines):
                running.append(asyncio.create_task(self._translate_chunk(chunk, source)))
                if len(running) == CHUNKS_AT_ONCE:
                    translations += await running[0]
                    running.popleft()
            while running:
                translations += await running[0]
                running.popleft()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return translations

    async def _translate_chunk(self, lines: Sequence[str], source: str) -> list[Translation]:
        """Translates some lines, again and again while the queue is full."""
        request = self.request
        while True:
            try:
                texts = await self.service.translate(
                    lines,
                    source,
                    request.target,
                    request.options,
                    client=request.client,
                    deadline=request.deadline,
                    is_checked=True,
                )
                break
            except ServiceError as error:
                if error.code != "queue_full":
                    raise
                await asyncio.sleep(error.retry_after or 1.0)
        self.progress.done += len(lines)
        self.progress.characters += sum(map(len, lines))
        return [_translation(text) for text in texts]


def _chunks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yields consecutive lines that are translated by one request."""
    chunk, n_characters = list[str](), 0
    for line in lines:
        chunk.append(line)
        n_characters += len(line)
        if len(chunk) == CHUNK_LINES or n_characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, n_characters = [], 0
    if chunk:
        yield chunk


def _translation(text: TranslatedText) -> Translation:
    """Returns the translation of a line as translators return it."""
    flags = text.flags
    if text.unsure and text.expected_chrf is not None:
        unsure = f"{UNSURE}{text.expected_chrf:.2f})"
        flags = (unsure, *(flag for flag in flags if not flag.startswith("unsure")))
    return Translation((replace(EMPTY_ALTERNATIVE, text=text.text),), flags, confidence=text.expected_chrf)
