"""Declarations of the server's routes; requests are checked, and `/openapi.json` is written, from the same ones."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from transformer.serving.errors import ServiceError

if TYPE_CHECKING:
    from transformer.serving.documents import Documents
    from transformer.serving.glossaries import Glossaries
    from transformer.serving.interfaces import Engine
    from transformer.serving.metrics import ServerMetrics
    from transformer.serving.settings import ServerSettings
    from transformer.serving.translation import TranslationService


@dataclass(frozen=True)
class Services:
    """Parts of the server that handlers use."""

    settings: "ServerSettings"
    engine: "Engine"
    translation: "TranslationService"
    glossaries: "Glossaries"
    metrics: "ServerMetrics"
    documents: "Documents"


@dataclass(frozen=True)
class Call:
    """A request whose client is known, and whose limits and body have been checked.

    Attributes:
        services: What handlers use.
        body: Validated body, an instance of `Operation.request`; None if the operation has no body.
        client: Identity of the client for fairness and limits; never logged or put in labels as it is.
        deadline: Value of `time.monotonic()` by which the client must be answered.
        request: The request, for path parameters and headers.
        owner: Identity of the client's key for stored things (glossaries); "" without keys.
    """

    services: Services
    body: Any
    client: str
    deadline: float
    request: Request
    owner: str = ""


ErrorForm = Callable[[ServiceError], Mapping[str, Any]]
"""Makes the JSON body of an error in the form of an interface."""


@dataclass(frozen=True)
class Operation:
    """A route: method, path, types of its request and response, and its handler.

    Attributes:
        method: HTTP method.
        path: Path, with parameters as `{name}`, or `{name:path}` for one that may have slashes.
        summary: First line of its documentation.
        handler: Function that answers; it returns a `Response`, or what is sent as JSON.
        error_form: Form of the errors of this interface.
        request: Type of the body; None for no body. Forms and query strings are read into the same type if
            `accepts` allows it; a field that is a list is then a repeated field.
        response: Type of the answer, for OpenAPI; None for one that is not JSON.
        media_type: Media type of an answer that is not JSON.
        accepts: Encodings of the body.
        interface: Heading in the documentation: "LibreTranslate", "DeepL", "OpenAI", "transformer" or "operation".
        is_open: Whether it needs no key and has no limits, e.g. `/live`.
        errors: HTTP statuses of errors beside 400, 401, 403, 413, 415, 429, 500, 503 and 504.
        success: HTTP status of an answer without error.
        description: Further documentation.
    """

    method: Literal["GET", "POST", "DELETE", "PUT", "PATCH"]
    path: str
    summary: str
    handler: Callable[[Call], Awaitable[Response | Any]]
    error_form: ErrorForm
    request: type[BaseModel] | None = None
    response: Any = None
    media_type: str = "application/json"
    accepts: tuple[Literal["json", "form", "multipart", "query"], ...] = ("json",)
    interface: str = "transformer"
    is_open: bool = False
    errors: tuple[int, ...] = field(default=())
    success: int = 200
    description: str = ""

    @property
    def shown_path(self) -> str:
        """Path as documentation and metrics show it, without the types of its parameters."""
        return self.path.replace(":path}", "}")
