"""Translates documents by the engine: their lines go through the queue in parts, and processes read and write them."""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from transformer.documents.formats import Format
from transformer.pipelines.translation.documents import DocumentOptions, DocumentReport
from transformer.pipelines.translation.results import UNSURE
from transformer.serving.document_processes import DocumentProcesses
from transformer.serving.errors import ServiceError
from transformer.serving.translation import TranslatedText, TranslateOptions, TranslationService
from transformer.text.languages import parse_language

TranslatedLine = tuple[str, tuple[str, ...], float | None]
"""Translation of a line, its flags, and its confidence."""
CHUNK_LINES: Final = 64
"""Maximum number of lines of a document that wait in the queue as one request."""
CHUNK_CHARACTERS: Final = 10_000
"""Number of characters that end such a request."""
CHUNKS_AT_ONCE: Final = 2
"""Requests of a document that wait at a time, so that workers need not wait for the next one."""
SAMPLE_CHARACTERS: Final = 2000
"""Number of characters of a document by which its language is detected."""


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


@dataclass(frozen=True)
class DocumentJob:
    """Translation of one document.

    Args:
        request: The document.
        service: Translates its lines.
        processes: Read and write it.
        progress: Receives the progress.
    """

    request: DocumentRequest
    service: TranslationService
    processes: DocumentProcesses
    progress: Progress = field(default_factory=Progress)

    async def run(self) -> tuple[bytes, DocumentReport]:
        """Returns the translated document, and a report. If the caller is cancelled, waiting lines are dropped.

        Raises:
            ServiceError: The document is wrong or too large, no model translates its language, or the engine fails.
        """
        request = self.request
        asked = tuple(parse_language(tag) or "" for tag in (request.source, request.target))
        read = await self._ask("read", asked, max_characters=request.max_characters)
        sample = " ".join(read["lines"][:SAMPLE_CHARACTERS])[:SAMPLE_CHARACTERS]
        source = await self.service.source_language(sample, request.source, request.target, request.options)
        languages = parse_language(source) or source, parse_language(request.target) or request.target
        if read["depends_on_languages"] and languages != asked:
            read = await self._ask("read", languages, max_characters=request.max_characters)
        self.progress.lines = len(read["lines"])
        translations = await self._translate(read["lines"], source)
        written = await self._ask("write", languages, translations=translations)
        return written.get("content", b""), DocumentReport.from_json(written["report"])

    async def _ask(self, task: str, languages: tuple[str, ...], **fields: Any) -> Mapping[str, Any]:
        request = self.request
        facts = {
            "task": task,
            "name": request.name,
            "format": request.form.name,
            "columns": request.form.columns,
            "languages": languages,
            "options": asdict(request.choice),
        }
        return await self.processes.ask(facts | fields, request.content)

    async def _translate(self, lines: Sequence[str], source: str) -> list[TranslatedLine]:
        translations: list[TranslatedLine] = []
        running: deque[asyncio.Task[list[TranslatedLine]]] = deque()
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

    async def _translate_chunk(self, lines: Sequence[str], source: str) -> list[TranslatedLine]:
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


def _translation(text: TranslatedText) -> TranslatedLine:
    """Returns the translation of a line with flags as translators give them."""
    flags = text.flags
    if text.unsure and text.expected_chrf is not None:
        unsure = f"{UNSURE}{text.expected_chrf:.2f})"
        flags = (unsure, *(flag for flag in flags if not flag.startswith("unsure")))
    return text.text, tuple(flags), text.expected_chrf
