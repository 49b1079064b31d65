"""Documents that clients send: they are translated one after the other, and kept in memory until they are fetched."""

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

from transformer.documents.formats import FORMATS, PLAIN_TEXT, Format, find_format
from transformer.errors import ConfigError
from transformer.pipelines.translation.documents import DocumentReport
from transformer.serving.document_processes import DocumentProcesses
from transformer.serving.document_translation import DocumentJob, DocumentRequest, Progress
from transformer.serving.errors import ServiceError
from transformer.serving.log import ServerLog
from transformer.serving.multipart import UploadedFile
from transformer.serving.settings import ServerSettings
from transformer.serving.translation import TranslationService
from transformer.serving.usage import USAGE, Usage
from transformer.text.document_kinds import HEAD_BYTES

State = Literal["queued", "translating", "done", "error"]
"""State of a document, as DeepL names it."""
AT_ONCE: Final = 4
"""Number of documents that are translated at a time, each of another client."""
MAX_NAME: Final = 150
"""Maximum number of characters of the name of a translated file."""
RETRY_SECONDS: Final = 60.0
"""Time after which a client may try again where too many documents are kept."""
_UNSAFE: Final = re.compile(r"[^\w .,()+@-]+")


@dataclass(eq=False)
class StoredDocument:
    """A document that waits, is translated, or was translated.

    Attributes:
        request: The document as it was sent.
        owner: Identity of the client's key, for whom characters are counted.
        id: Identifier, 32 random hexadecimal digits.
        key: Key without which nobody gets it, 64 random hexadecimal digits.
        state: State.
        progress: Number of lines that were translated.
        content: Translated document; empty before it is done.
        report: Counts of its segments; None before it is done.
        error: Why it was not translated; None if nothing failed.
        started: Value of `time.monotonic()` at which the translation began.
        is_awaited: Whether a client waits for the answer, and its identifier alone suffices to download it.
        task: Task that translates it.
    """

    request: DocumentRequest
    owner: str
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    key: str = field(default_factory=lambda: secrets.token_hex(32))
    state: State = "queued"
    progress: Progress = field(default_factory=Progress)
    content: bytes = b""
    report: DocumentReport | None = None
    error: ServiceError | None = None
    started: float = 0.0
    is_awaited: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        """Number of bytes that are kept for it."""
        return len(self.content) or len(self.request.content)

    @property
    def name(self) -> str:
        """Name of the translated file, with the language before its extension, e.g. `app_de.po`."""
        return translated_name(self.request.name, self.request.target)

    @property
    def seconds_left(self) -> int:
        """Estimated number of seconds until it is translated, at least 1."""
        progress = self.progress
        if not self.started or not progress.done:
            return max(1, progress.lines // 10)
        elapsed = time.monotonic() - self.started
        return max(1, round(elapsed * (progress.lines - progress.done) / progress.done))


class Documents:
    """Translates the documents of clients and keeps the results for a limited time, in memory alone.

    The documents of one client are translated one after the other, and those of `AT_ONCE` clients at a time.

    Args:
        translation: Translates lines.
        settings: Settings of the server: limits.
        processes: Read and write documents.
        log: Where documents are logged, without names and texts.
    """

    def __init__(
        self,
        translation: TranslationService,
        settings: ServerSettings,
        processes: DocumentProcesses,
        log: ServerLog | None = None,
    ) -> None:
        self._translation, self._settings, self._log = translation, settings, log or ServerLog("none")
        self._processes = processes
        self._stored: dict[str, StoredDocument] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(AT_ONCE)

    @property
    def suffixes(self) -> list[str]:
        """Extensions of the files that are translated; none if the settings allow no documents."""
        forms = (*FORMATS, PLAIN_TEXT) if self._settings.limits.documents else ()
        return [suffix for form in forms for suffix in form.suffixes]

    def format_of(self, file: UploadedFile, columns: Sequence[int | str] = ()) -> Format:
        """Returns the format of a file.

        Args:
            file: The file.
            columns: Columns of a table to translate; by default those with sentences.

        Raises:
            ServiceError: It is too large, its format is not known, or has no columns.
        """
        limits = self._settings.limits
        if len(file.content) > limits.document_bytes:
            message = f"the file has more than {limits.document_bytes:,} bytes; split it"
            raise ServiceError("too_large", message, param="file")
        form = find_format(Path(file.name), file.content[:HEAD_BYTES])
        if form is None and file.name.lower().endswith(PLAIN_TEXT.suffixes):
            form = PLAIN_TEXT
        if form is None:
            message = f"files of this format are not translated; send one of {', '.join(self.suffixes) or 'none'}"
            raise ServiceError("invalid_request", message, param="file")
        try:
            return form.with_columns(columns)
        except ConfigError as error:
            raise ServiceError("invalid_request", str(error).replace("--", ""), param="columns") from error

    def add(self, request: DocumentRequest, owner: str, *, is_awaited: bool = False) -> StoredDocument:
        """Begins to translate a document; `StoredDocument.task` ends when it is translated or has failed.

        Args:
            request: The document.
            owner: Identity of the client's key.
            is_awaited: Whether the client waits for the answer.

        Raises:
            ServiceError: Too many documents are kept.
        """
        self._make_space(request)
        document = StoredDocument(request, owner, is_awaited=is_awaited)
        self._stored[document.id] = document
        document.task = asyncio.create_task(self._run(document))
        return document

    def get_public(self, identifier: str) -> StoredDocument:
        """Returns a translated document that everybody who knows its identifier may download.

        Raises:
            ServiceError: There is none, or it was deleted.
        """
        document = self._stored.get(identifier)
        if document is None or not document.is_awaited:
            raise ServiceError("not_found", "this file does not exist; translated files are deleted after a time")
        return document

    def get(self, identifier: str, key: str, owner: str) -> StoredDocument:
        """Returns a document by its identifier and key.

        Raises:
            ServiceError: There is none, the key is that of another one, it has another owner, or it was deleted.
        """
        document = self._stored.get(identifier)
        is_theirs = document is not None and document.owner == owner
        if document is None or not is_theirs or not hmac.compare_digest(document.key.encode(), _encoded(key)):
            message = "no document has this identifier and key; they are deleted after a download, or after a time"
            raise ServiceError("not_found", message)
        return document

    def discard(self, document: StoredDocument) -> None:
        """Deletes a document, and cancels its translation."""
        self._stored.pop(document.id, None)
        if document.task is not None:
            document.task.cancel()

    def stop(self) -> None:
        """Deletes all documents, and cancels their translations, except those for which a client waits."""
        for document in list(self._stored.values()):
            if not document.is_awaited or document.state == "done":
                self.discard(document)

    async def close(self) -> None:
        """Ends the processes that read and write documents."""
        await self._processes.close()

    def _make_space(self, request: DocumentRequest) -> None:
        """Deletes the oldest translated document of a client who has too many."""
        limits = self._settings.limits
        if not limits.documents:
            raise ServiceError("invalid_request", "this server translates no documents", param="file")
        owned = [document for document in self._stored.values() if document.request.client == request.client]
        if len(owned) >= limits.documents:
            oldest = next((document for document in owned if document.state in ("done", "error")), None)
            if oldest is None:
                message = f"more than {limits.documents} documents at a time; wait for one first"
                raise ServiceError("rate_limited", message, retry_after=RETRY_SECONDS)
            self.discard(oldest)
        size = sum(document.size for document in self._stored.values()) + len(request.content)
        if size > limits.all_documents_bytes:
            message = "the server keeps too many documents; download yours, or send this one later"
            raise ServiceError("queue_full", message, retry_after=RETRY_SECONDS)

    async def _run(self, document: StoredDocument) -> None:
        """Translates a document when it is its turn, and deletes it after a time."""
        usage = Usage(texts=[] if self._settings.log_texts else None)
        USAGE.set(usage)
        begin = time.monotonic()
        turn = self._turns.setdefault(document.request.client, asyncio.Lock())
        try:
            async with asyncio.timeout(self._settings.limits.document_seconds), turn, self._slots:
                await self._translate(document)
        except ServiceError as error:
            document.error = error
        except TimeoutError:
            document.error = ServiceError("timeout", "the translation took too long; split the file")
        except Exception as error:
            self._log.failure("failure", error, route="document")
            document.error = ServiceError("internal", "the server failed to translate this file")
        finally:
            self._translation.characters[document.owner] += document.progress.characters
        document.state = "error" if document.error else "done"
        document.request = replace(document.request, content=b"")
        asyncio.get_running_loop().call_later(self._settings.limits.kept_seconds, self.discard, document)
        self._write_log(document, usage, time.monotonic() - begin)

    async def _translate(self, document: StoredDocument) -> None:
        document.state, document.started = "translating", time.monotonic()
        job = DocumentJob(document.request, self._translation, self._processes, document.progress)
        document.content, document.report = await job.run()

    def _write_log(self, document: StoredDocument, usage: Usage, seconds: float) -> None:
        facts: dict[str, Any] = {
            "format": document.request.form.name,
            "state": document.state,
            "error": document.error.code if document.error else None,
            "ms": round(1000 * seconds, 1),
            "items": usage.items,
            "tokens": usage.tokens,
            "texts": usage.texts,
        }
        self._log.write("document", **facts)


def _encoded(key: str) -> bytes:
    return key.encode(errors="replace")


def translated_name(name: str, target: str) -> str:
    """Returns the name of a translated file: letters, digits and some marks, with the language before the extension."""
    stem, dot, suffix = _UNSAFE.sub("_", name).strip(". ").rpartition(".")
    if not dot:
        stem, suffix = suffix, ""
    ending = f"_{_UNSAFE.sub('_', target)[:20].lower()}{dot}{suffix[:20]}"
    return (stem[: MAX_NAME - len(ending)] or "document") + ending
