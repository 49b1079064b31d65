"""Files of LibreTranslate: the answer to a file is an address from which its translation is downloaded."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from transformer.serving.documents import StoredDocument
from transformer.serving.errors import ServiceError
from transformer.serving.operations import Call, ErrorForm, Operation
from transformer.serving.routes.document_fields import DocumentDetails, DocumentFields, begin, download
from transformer.serving.translation import AUTO, TranslateOptions

OCTETS: Final = "application/octet-stream"


class TranslateFileRequest(DocumentFields):
    """A file to translate.

    Attributes:
        source: Language of the file (BCP 47), or "auto".
        target: Language to translate to.
        api_key: Key, if the server needs one.
    """

    source: str
    target: str
    api_key: str = ""


class TranslateFileResponse(BaseModel):
    """Address of the translated file.

    Attributes:
        translatedFileUrl: Address from which it can be downloaded for a limited time.
        details: Summary, if asked for.
    """

    model_config = ConfigDict(populate_by_name=True)

    translated_file_url: str = Field(alias="translatedFileUrl")
    details: DocumentDetails | None = None


async def translate_file(call: Call) -> dict[str, Any]:
    """Translates a file; if the client leaves before, its translation is cancelled."""
    request: TranslateFileRequest = call.body
    source = AUTO if request.source.lower() == AUTO else request.source
    document = begin(call, request.file, source, request.target, request, TranslateOptions(), is_awaited=True)
    await _finished(call, document)
    answer: dict[str, Any] = {"translatedFileUrl": _address(call, document)}
    return answer | ({"details": DocumentDetails.of(document)} if request.details else {})


async def download_file(call: Call) -> Response:
    """Returns a translated file, whose name nobody can guess."""
    identifier = call.request.path_params["name"].partition(".")[0]
    document = call.services.documents.get_public(identifier)
    return download(document)


async def _finished(call: Call, document: StoredDocument) -> None:
    """Waits until a document is translated.

    Raises:
        ServiceError: The translation has failed.
    """
    documents = call.services.documents
    assert document.task is not None
    try:
        await asyncio.wait([document.task])
    finally:
        if document.state != "done":
            documents.discard(document)
    if document.state != "done":
        raise document.error or ServiceError("unavailable", "the server is stopping", retry_after=1.0)


def _address(call: Call, document: StoredDocument) -> str:
    request, root = call.request, call.services.settings.root_path
    return f"{_scheme(request)}://{request.url.netloc}{root}/download_file/{document.id}.{quote(document.name)}"


def _scheme(request: Request) -> str:
    """Returns the scheme by which the client reaches the server, which a reverse proxy may know better."""
    forwarded = request.headers.get("x-forwarded-proto", "").strip().lower()
    return forwarded if forwarded in ("http", "https") else request.url.scheme


def file_operations(error_form: ErrorForm, interface: str) -> Sequence[Operation]:
    """Returns the operations of files.

    Args:
        error_form: Form of the errors of the interface.
        interface: Name of the interface.
    """
    return (
        Operation(
            "POST", "/translate_file", "Translates a file", translate_file, error_form,
            request=TranslateFileRequest, response=TranslateFileResponse, accepts=("multipart",), interface=interface,
        ),
        Operation(
            "GET", "/download_file/{name}", "Translated file", download_file, error_form,
            media_type=OCTETS, interface=interface, is_open=True, errors=(404,),
        ),
    )  # fmt: skip
