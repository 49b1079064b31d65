"""Fields of requests that translate documents, and the summary of a result."""

import time
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from pydantic import BaseModel, Field
from starlette.responses import Response

from transformer.documents.formats import parse_columns
from transformer.options.fields import Doc
from transformer.pipelines.translation.documents import DocumentOptions
from transformer.serving.document_translation import DocumentRequest
from transformer.serving.documents import StoredDocument
from transformer.serving.multipart import File, UploadedFile
from transformer.serving.operations import Call
from transformer.serving.routes.translate_fields import TranslateFields, with_fields
from transformer.serving.translation import TranslateOptions

MAX_PROBLEMS = 100
"""Maximum number of problems in a summary."""


class DocumentFields(TranslateFields):
    """A document, and options of its translation beyond those of other servers."""

    file: File
    all: Annotated[bool, Doc("whether segments that have a translation are translated again")] = False
    fuzzy: Annotated[bool, Doc("whether translations that are to be reviewed are replaced")] = False
    mark: Annotated[
        Literal["all", "unsure", "none"], Doc("which translations are marked for review, in formats with such a mark")
    ] = "all"
    columns: Annotated[
        str, Doc("columns of a table to translate: names in its first row, or numbers from 1, separated by commas")
    ] = ""


class Problem(BaseModel):
    """A segment that was left untranslated, or whose translation is unsure.

    Attributes:
        place: File and line.
        reason: Why, and whether it was left untranslated.
        source: Its text.
        translation: Its translation; null if it was left untranslated.
    """

    place: str
    reason: str
    source: str
    translation: str | None


class DocumentDetails(BaseModel):
    """Progress of the translation of a document, and then its summary.

    Attributes:
        lines: Number of lines to translate; 0 until the document was read.
        lines_done: Number of lines that were translated.
        name: Name of the translated file.
        translated: Number of segments that were translated, unsure ones included.
        unsure: Number of translations that are likely to be bad.
        untranslated: Number of segments that were left as they are because their translation was wrong.
        kept: Number of segments that had a translation, or nothing to translate.
        reasons: Number of segments by the reason why they are unsure or were left untranslated.
        problems: The first of these segments.
        notes: What a reader should know about how the document was read, such as the columns that were chosen.
    """

    lines: int
    lines_done: int
    name: str
    translated: int | None = None
    unsure: int | None = None
    untranslated: int | None = None
    kept: int | None = None
    reasons: dict[str, int] = Field(default_factory=dict[str, int])
    problems: list[Problem] = Field(default_factory=list[Problem])
    notes: list[str] = Field(default_factory=list[str])

    @classmethod
    def of(cls, document: StoredDocument) -> Self:
        """Returns the details of a document."""
        progress, report = document.progress, document.report
        details = cls(lines=progress.lines, lines_done=progress.done, name=document.name)
        if report is None:
            return details
        return details.model_copy(
            update={
                "translated": report.translated,
                "unsure": report.unsure,
                "untranslated": report.refused,
                "kept": report.kept,
                "reasons": dict(report.reasons.most_common()),
                "problems": [
                    Problem(
                        place=problem.place, reason=str(problem), source=problem.source, translation=problem.translation
                    )
                    for problem in report.problems[:MAX_PROBLEMS]
                ],
                "notes": [note.replace("--columns", "columns") for note in report.notes],
            }
        )


def begin(
    call: Call,
    file: UploadedFile,
    source: str,
    target: str,
    fields: DocumentFields,
    options: TranslateOptions,
    *,
    is_awaited: bool = False,
) -> StoredDocument:
    """Begins to translate the document of a request.

    Args:
        call: The request.
        file: Its document, with the name by which its format is known.
        source: Tag of its language, or "auto".
        target: Tag of the language to translate to.
        fields: Fields of the request.
        options: Options that the interface has set; those of `fields` are added.
        is_awaited: Whether the client waits for the answer.

    Raises:
        ServiceError: The format is not known, an option or the target is wrong, or there are too many documents.
    """
    documents, limits = call.services.documents, call.services.settings.limits
    options = with_fields(
        call, source, target, fields.model_copy(update={"alternatives": 0, "details": False}), options
    )
    call.services.translation.check_request(source, target, options)
    request = DocumentRequest(
        file.name,
        file.content,
        documents.format_of(file, parse_columns(fields.columns)),
        source,
        target,
        options,
        DocumentOptions(only_untranslated=not fields.all, fuzzy=fields.fuzzy, mark=fields.mark),
        call.client,
        time.monotonic() + limits.document_seconds,
        limits.document_characters,
    )
    return documents.add(request, call.owner, is_awaited=is_awaited)


def download(document: StoredDocument) -> Response:
    """Returns a translated document such that a browser stores it, and never shows or runs what is in it."""
    name = document.name
    plain = name.encode("ascii", "replace").decode().replace("?", "_")
    headers: dict[str, Any] = {
        "Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "no-store",
    }
    return Response(document.content, media_type="application/octet-stream", headers=headers)
