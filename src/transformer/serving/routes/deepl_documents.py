"""Documents of DeepL: they are sent, translated in the background, and downloaded once."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from pydantic import BaseModel
from starlette.responses import Response

from transformer.serving.documents import State, StoredDocument
from transformer.serving.errors import ServiceError
from transformer.serving.multipart import UploadedFile
from transformer.serving.operations import Call, Operation
from transformer.serving.routes.deepl_fields import SharedFields, options_of
from transformer.serving.routes.deepl_glossaries import INTERFACE, error_form
from transformer.serving.routes.document_fields import DocumentDetails, DocumentFields, begin, download
from transformer.serving.translation import AUTO

OCTETS: Final = "application/octet-stream"


class DocumentUpload(DocumentFields, SharedFields):
    """A document to translate.

    Attributes:
        filename: Name of the file instead of the one that it was sent with.
        output_format: Extension of the translated file, which must be that of the file.
    """

    filename: str | None = None
    output_format: str | None = None


class DocumentHandle(BaseModel):
    """Identifier and key of a document, which all further requests need."""

    document_id: str
    document_key: str


class KeyRequest(BaseModel):
    """Key of a document."""

    document_key: str


class DocumentStatus(BaseModel):
    """State of the translation of a document.

    Attributes:
        document_id: Identifier.
        status: State.
        seconds_remaining: Estimated time until it is translated; only while it is translated.
        billed_characters: Number of characters that were translated; only when it is done.
        error_message: Why it could not be translated; only after an error.
        details: Progress and summary.
    """

    document_id: str
    status: State
    seconds_remaining: int | None = None
    billed_characters: int | None = None
    error_message: str | None = None
    details: DocumentDetails


async def upload(call: Call) -> DocumentHandle:
    """Begins to translate a document."""
    request: DocumentUpload = call.body
    file = UploadedFile(PurePosixPath(request.filename or request.file.name).name, request.file.content)
    suffix = PurePosixPath(file.name).suffix
    if request.output_format and request.output_format.lower().lstrip(".") != suffix.lower().lstrip("."):
        message = f"output_format: a document keeps its format; leave it out, or give {suffix.lstrip('.')!r:.20}"
        raise ServiceError("invalid_request", message, param="output_format")
    options = options_of(call, request)
    document = begin(call, file, request.source_lang or AUTO, request.target_lang, request, options)
    return DocumentHandle(document_id=document.id, document_key=document.key)


async def status(call: Call) -> dict[str, Any]:
    """Returns the state of a document."""
    document = _stored(call)
    answer: dict[str, Any] = {"document_id": document.id, "status": document.state}
    match document.state:
        case "translating":
            answer["seconds_remaining"] = document.seconds_left
        case "done":
            answer["billed_characters"] = document.progress.characters
        case "error" if document.error:
            answer["error_message"] = document.error.message
        case _:
            pass
    return answer | {"details": DocumentDetails.of(document)}


async def result(call: Call) -> Response:
    """Returns a translated document, and deletes it."""
    document = _stored(call)
    if document.error is not None:
        raise document.error
    if document.state != "done":
        raise ServiceError("unavailable", "the document is not translated yet; ask for its status", retry_after=1.0)
    response = download(document)
    call.services.documents.discard(document)
    return response


async def delete(call: Call) -> Response:
    """Deletes a document, and cancels its translation."""
    call.services.documents.discard(_stored(call))
    return Response(status_code=204)


def _stored(call: Call) -> StoredDocument:
    identifier = call.request.path_params["document_id"]
    return call.services.documents.get(identifier, call.body.document_key, call.owner)


def _operation(method: Literal["POST", "DELETE"], path: str, summary: str, handler: Any, **rest: Any) -> Operation:
    return Operation(method, path, summary, handler, error_form, interface=INTERFACE, **rest)


KEY: Final[Any] = ("json", "form", "multipart")
DOCUMENT_OPERATIONS: Final[Sequence[Operation]] = (
    _operation(
        "POST", "/v2/document", "Begins to translate a document", upload,
        request=DocumentUpload, response=DocumentHandle, accepts=("multipart",), errors=(404,),
    ),
    _operation(
        "POST", "/v2/document/{document_id}", "State of a document", status,
        request=KeyRequest, response=DocumentStatus, accepts=KEY, errors=(404,),
    ),
    _operation(
        "POST", "/v2/document/{document_id}/result", "Translated document, once", result,
        request=KeyRequest, media_type=OCTETS, accepts=KEY, errors=(404,),
    ),
    _operation(
        "DELETE", "/v2/document/{document_id}", "Deletes a document, or cancels its translation", delete,
        request=KeyRequest, accepts=("query",), success=204, errors=(404,),
    ),
)  # fmt: skip
