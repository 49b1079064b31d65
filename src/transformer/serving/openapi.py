"""Writes the OpenAPI description of the server from its operations."""

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

from transformer.serving.bodies import FORM, JSON, MULTIPART
from transformer.serving.errors import ServiceError
from transformer.serving.operations import Operation

MEDIA_TYPES: Final = {"json": JSON, "form": FORM, "multipart": MULTIPART}
COMMON_ERRORS: Final = (400, 401, 403, 429, 500, 503, 504)
BODY_ERRORS: Final = (413, 415)
MEANINGS: Final = {
    400: "The request is wrong", 401: "A key is missing or unknown", 403: "The key is unknown", 404: "Not found",
    405: "The path has no such method", 413: "The request is too large", 415: "The type of the body is not accepted",
    429: "Too many requests, or the queue is full", 500: "The server failed", 501: "Not implemented",
    503: "The server is not ready", 504: "The answer took too long",
}  # fmt: skip
REFERENCE: Final = "#/components/schemas/{model}"


def describe(operations: Sequence[Operation], root_path: str = "") -> dict[str, Any]:
    """Returns an OpenAPI 3.1 document.

    Args:
        operations: Operations of the server.
        root_path: Path under which a reverse proxy shows the server.
    """
    schemas, definitions = _all_schemas(operations)
    paths: dict[str, Any] = {}
    for number, operation in enumerate(operations):
        paths.setdefault(operation.shown_path, {})[operation.method.lower()] = _describe_operation(
            operation, schemas.get((number, "validation")), schemas.get((number, "serialization"))
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "transformer", "version": version("transformer"), "license": {"name": "MIT"}},
        "servers": [{"url": root_path or "/"}],
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _all_schemas(operations: Sequence[Operation]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Returns the schemas of requests and responses by operation number, and the components that they refer to."""
    adapters: list[tuple[int, Any, TypeAdapter[Any]]] = []
    for number, operation in enumerate(operations):
        if operation.request is not None:
            adapters.append((number, "validation", TypeAdapter(operation.request)))
        if operation.response is not None:
            adapters.append((number, "serialization", TypeAdapter(operation.response)))
    schemas, definitions = TypeAdapter.json_schemas(adapters, ref_template=REFERENCE)
    return schemas, definitions.get("$defs", {})


def _describe_operation(operation: Operation, request: Any, response: Any) -> dict[str, Any]:
    names = re.findall(r"{(\w+)(?::\w+)?}", operation.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    described: dict[str, Any] = {
        "summary": operation.summary,
        "tags": [operation.interface],
        "operationId": _operation_id(operation),
        "responses": _describe_responses(operation, response),
    }
    if operation.description:
        described["description"] = operation.description
    encodings = [encoding for encoding in operation.accepts if encoding != "query"]
    if operation.request is not None and not encodings:
        parameters += _describe_query(operation.request)
    elif operation.request is not None:
        content = {MEDIA_TYPES[encoding]: {"schema": request} for encoding in encodings}
        described["requestBody"] = {"required": "query" not in operation.accepts, "content": content}
    if parameters:
        described["parameters"] = parameters
    if not operation.is_open:
        described["security"] = [{}, {"bearer": []}, {"key": []}]
    return described


def _operation_id(operation: Operation) -> str:
    return "_".join(re.findall(r"\w+", f"{operation.method.lower()} {operation.path}"))


def _describe_query(model: type[BaseModel]) -> list[dict[str, Any]]:
    schema = TypeAdapter(model).json_schema(ref_template=REFERENCE)
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": field}
        for name, field in schema.get("properties", {}).items()
    ]


def _describe_responses(operation: Operation, response: Any) -> dict[str, Any]:
    content = {operation.media_type: {"schema": response if response is not None else {"type": "string"}}}
    success: dict[str, Any] = {"description": "Success"}
    if operation.success != 204:
        success["content"] = content
    statuses = set(operation.errors)
    if not operation.is_open:
        statuses |= set(COMMON_ERRORS)
    if operation.request is not None and operation.accepts != ("query",):
        statuses |= set(BODY_ERRORS)
    sample = operation.error_form(ServiceError("internal", "message", param="field"))
    error = {"application/json": {"schema": _schema_of(sample)}}
    if operation.is_open:
        error = content
    errors = {
        str(status): {"description": MEANINGS.get(status, "Error"), "content": error} for status in sorted(statuses)
    }
    return {str(operation.success): success, **errors}


def _schema_of(sample: Any) -> dict[str, Any]:
    """Returns a schema of objects that have the fields of a sample; its texts and numbers may also be null."""
    match sample:
        case dict():
            properties = {name: _schema_of(value) for name, value in sample.items()}
            return {"type": "object", "properties": properties, "required": list(properties)}
        case str():
            return {"type": ["string", "null"]}
        case int():
            return {"type": ["integer", "null"]}
        case _:
            return {}
