"""Reads and checks the bodies of requests: JSON, forms, multipart forms and query strings, within limits."""

import math
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import Request

from transformer.serving.errors import ServiceError
from transformer.serving.multipart import Value, is_upload, parse_multipart
from transformer.serving.operations import Operation
from transformer.serving.settings import Limits

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
Encoding = Literal["json", "form", "multipart"]
ENCODINGS: Final[Mapping[str, Encoding]] = {JSON: "json", FORM: "form", MULTIPART: "multipart"}
GZIP: Final = ("gzip", "x-gzip")
"""Accepted values of the header Content-Encoding."""
GZIP_WINDOW: Final = zlib.MAX_WBITS + 16
"""Argument `wbits` of zlib for data with the header of gzip."""
MAX_GZIP_MEMBERS: Final = 100
"""Most members of a gzip file; after each one the rest is copied, so that many of them take quadratic time."""
LARGE_EXPONENT: Final = re.compile(rb"[0-9][eE]\+?[0-9]{3}")
"""Occurs in every JSON number that is too large for a float."""
Shape = Literal["single", "list", "either", "object"]
"""How a field is written in a form: once, repeatedly, either of them, or as JSON."""


async def read_body(request: Request, operation: Operation, model: type[BaseModel], limits: Limits) -> dict[str, Any]:
    """Returns the fields of a request before they are validated.

    Args:
        request: The request.
        operation: What it asks for, which determines the accepted encodings.
        model: Type of the body.
        limits: Limits on the body.

    Raises:
        ServiceError: The body is too large, has another type, or is not what its type says.
    """
    max_values = 2 * (limits.texts + limits.glossary_terms)
    values: dict[str, Any] = {}
    if "query" in operation.accepts:
        values = _gather(_parse_pairs(request.url.query.encode(), max_values), model, max_values)
    if operation.accepts == ("query",):
        return values
    uploads = {field.alias or name for name, field in model.model_fields.items() if is_upload(field.annotation)}
    content = await _read_decompressed(request, limits.body_bytes + (limits.document_bytes if uploads else 0))
    if not content and "query" in operation.accepts:
        return values
    match _encoding(request, operation):
        case "form":
            return values | _gather(_parse_pairs(content, max_values), model, max_values)
        case "multipart":
            pairs = parse_multipart(content, request.headers["content-type"], max_values, uploads)
            return values | _gather(pairs, model, max_values)
        case _:
            return values | parse_json(content, max_values)


def validate(values: Mapping[str, Any], model: type[BaseModel]) -> BaseModel:
    """Returns the validated fields of a request; null is the same as leaving out a field that need not be given.

    Raises:
        ServiceError: A field is missing or wrong.
    """
    optional = {field.alias or name for name, field in model.model_fields.items() if not field.is_required()}
    fields = {name: value for name, value in values.items() if value is not None or name not in optional}
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = str(problem["loc"][0]) if problem["loc"] else None
        rule = problem["msg"].removeprefix("Value error, ")
        raise ServiceError("invalid_request", f"{name}: {rule}" if name else rule, param=name) from None


async def _read_decompressed(request: Request, max_bytes: int) -> bytes:
    """Returns the content of a body, of which no more is kept than the limit, nor decompressed.

    Raises:
        ServiceError: It is larger, or is not compressed as its header says.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", *GZIP):
        raise ServiceError("unsupported", "the compression of the body is not accepted; send gzip, or plain text")
    content = await read_limited(request, max_bytes)
    return _decompress(content, max_bytes) if content and encoding in GZIP else content


def _decompress(content: bytes, max_bytes: int) -> bytes:
    """Returns the data of a gzip file, which may have several members."""
    data = bytearray()
    try:
        for _ in range(MAX_GZIP_MEMBERS):
            if not content:
                return bytes(data)
            member = zlib.decompressobj(GZIP_WINDOW)
            data += member.decompress(content, max_bytes + 1 - len(data))
            if len(data) > max_bytes:
                raise _too_large(max_bytes)
            if not member.eof:
                raise ServiceError("invalid_request", "the body is cut short; its gzip data have no end")
            content = member.unused_data
    except zlib.error:
        raise ServiceError("invalid_request", "the body is not compressed by gzip, as its header says") from None
    raise ServiceError("invalid_request", f"the gzip data have more than {MAX_GZIP_MEMBERS - 1} members; send one")


async def read_limited(request: Request, max_bytes: int) -> bytes:
    """Returns the content of a body as it was sent, of which no more is kept than the limit.

    Raises:
        ServiceError: It is larger.
    """
    too_large = _too_large(max_bytes)
    if int(request.headers.get("content-length") or 0) > max_bytes:
        raise too_large
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > max_bytes:
            raise too_large
    return bytes(content)


def _too_large(max_bytes: int) -> ServiceError:
    return ServiceError(
        "too_large",
        f"the body is larger than {max_bytes:,} bytes; split it, or ask the operator of this server for a larger limit",
    )


def parse_json(content: bytes, max_values: int) -> dict[str, Any]:
    """Returns a JSON object.

    Args:
        content: Text of the object, which may begin with a byte order mark.
        max_values: Maximum number of values in all its lists and objects; each could be an error to describe.

    Raises:
        ServiceError: It is another JSON value, is not UTF-8, or has numbers that are not finite
            or too many values.
    """
    try:
        value = from_json(content.removeprefix(BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise ServiceError("invalid_request", f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ServiceError("invalid_request", "the body is not a JSON object; send {...}")
    _check_number_of_values(value, max_values)
    if LARGE_EXPONENT.search(content) and not _is_finite(value):
        raise ServiceError("invalid_request", "the body has a number that is too large")
    return value


def _check_number_of_values(value: Any, max_values: int) -> None:
    n_values, rest = 0, [value]
    while rest:
        container = rest.pop()
        n_values += len(container)
        if n_values > max_values:
            raise ServiceError("too_large", f"the body has more than {max_values} values; split the request")
        children = container.values() if isinstance(container, dict) else container
        rest += [child for child in children if isinstance(child, dict | list)]


def _is_finite(value: Any) -> bool:
    match value:
        case dict():
            return all(map(_is_finite, value.values()))
        case list():
            return all(map(_is_finite, value))
        case float():
            return math.isfinite(value)
        case _:
            return True


def _encoding(request: Request, operation: Operation) -> Encoding:
    """Returns the encoding of a body; without a header it is JSON, or a form where JSON is not accepted."""
    header = request.headers.get("content-type", "")
    media_type, _, parameters = header.partition(";")
    media_type = media_type.strip().lower()
    charset = re.search(r"charset=\"?([^\s\";]+)", parameters, re.IGNORECASE)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise ServiceError("unsupported", "the body must be UTF-8")
    default: Encoding = "json" if "json" in operation.accepts else "form"
    encoding = ENCODINGS.get(media_type) if media_type else default
    if encoding is not None and encoding in operation.accepts:
        return encoding
    accepted = ", ".join(media for media, name in ENCODINGS.items() if name in operation.accepts)
    raise ServiceError("unsupported", f"the type of the body is not accepted; send {accepted}")


def _parse_pairs(content: bytes, max_fields: int) -> list[tuple[str, str]]:
    """Returns the fields of a form or query string."""
    try:
        text = content.decode("utf-8")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=max_fields)
    except UnicodeError:
        raise ServiceError("invalid_request", "the form is not UTF-8") from None
    except ValueError:
        raise ServiceError("invalid_request", f"the form has more than {max_fields} fields") from None


def _gather(pairs: Sequence[tuple[str, Value]], model: type[BaseModel], max_values: int) -> dict[str, Any]:
    """Returns the fields of a form as the values of a model; the last value counts where there may be one alone."""
    values: dict[str, list[Value]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    shapes: dict[str, Shape] = {
        field.alias or name: _shape(field.annotation) for name, field in model.model_fields.items()
    }
    return {name: _as_shape(texts, shapes.get(name), max_values) for name, texts in values.items()}


def _as_shape(values: list[Value], shape: Shape | None, max_values: int) -> Any:
    if shape == "list" or (shape == "either" and len(values) > 1):
        return values
    last = values[-1]
    if shape == "object" and isinstance(last, str) and last.startswith("{"):
        return parse_json(last.encode(), max_values)
    return last


def _shape(annotation: Any) -> Shape:
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        shapes: set[Shape] = {_shape(part) for part in get_args(annotation) if part is not type(None)}
        if "object" in shapes:
            return "object"
        return "either" if len(shapes) > 1 or "either" in shapes else shapes.pop()
    if origin in (list, tuple, set, frozenset, Sequence):
        return "list"
    if origin in (dict, Mapping) or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return "object"
    return "single"
