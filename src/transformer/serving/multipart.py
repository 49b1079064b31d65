"""Multipart forms (RFC 7578), whose parts are fields or files."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import unquote_to_bytes

from pydantic import PlainValidator, WithJsonSchema
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from transformer.serving.errors import ServiceError

MAX_PART_HEADERS: Final = 4096
"""Size of the headers of one part of a multipart form, in bytes."""
ENCODED_NAME: Final = re.compile(rb"; *filename\*=utf-8'[^']*'([^;\s]+)", re.IGNORECASE)
"""Encoded name of a file (RFC 5987), which RFC 7578 forbids in forms and some clients send."""


@dataclass(frozen=True)
class UploadedFile:
    """A file in a form.

    Attributes:
        name: Name as the client sent it, without folders; it is not safe to use as a path.
        content: Its bytes.
    """

    name: str
    content: bytes


def _check_file(value: Any) -> UploadedFile:
    if not isinstance(value, UploadedFile):
        raise ValueError("send a file with its name, as a part of a multipart form")
    return value


File = Annotated[
    UploadedFile, PlainValidator(_check_file), WithJsonSchema({"type": "string", "contentMediaType": "*/*"})
]
"""Type of a field of a request that is a file."""
Value = str | UploadedFile
"""Value of a field."""


def is_upload(annotation: Any) -> bool:
    """Whether a field of this type is a file."""
    return annotation is UploadedFile


class _Parts:
    """Receives the parts of a multipart form; files are texts like others, except those in fields for files."""

    def __init__(self, max_fields: int, uploads: Collection[str]) -> None:
        self.pairs: list[tuple[str, Value]] = []
        self._max_fields, self._uploads = max_fields, uploads
        self._header, self._value, self._data = bytearray(), bytearray(), bytearray()
        self._name, self._file_name = "", ""
        self._n_header_bytes = 0

    def begin(self) -> None:
        if len(self.pairs) >= self._max_fields:
            raise ServiceError("invalid_request", f"the form has more than {self._max_fields} fields")
        self._name, self._file_name = "", ""
        self._n_header_bytes = 0
        self._data.clear()

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def end_header(self) -> None:
        self._n_header_bytes += len(self._header) + len(self._value)
        if self._n_header_bytes > MAX_PART_HEADERS:
            raise ServiceError("invalid_request", "a part of the form has headers that are too long")
        if bytes(self._header).lower() == b"content-disposition":
            options = parse_options_header(bytes(self._value))[1]
            encoded = ENCODED_NAME.search(self._value)
            self._name = options.get(b"name", b"").decode()
            file_name = unquote_to_bytes(bytes(encoded[1])) if encoded else options.get(b"filename", b"")
            self._file_name = file_name.decode(errors="replace")
        self._header.clear()
        self._value.clear()

    def data(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]

    def end(self) -> None:
        is_file = self._name in self._uploads and self._file_name
        value = UploadedFile(_base_name(self._file_name), bytes(self._data)) if is_file else self._data.decode()
        self.pairs.append((self._name, value))


def parse_multipart(
    content: bytes, content_type: str, max_fields: int, uploads: Collection[str] = ()
) -> list[tuple[str, Value]]:
    """Returns the fields of a multipart form.

    Args:
        content: The form.
        content_type: Value of the header Content-Type, which has the boundary.
        max_fields: Maximum number of fields.
        uploads: Names of the fields that are files.

    Raises:
        ServiceError: It is not such a form, or has too many fields.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    parts = _Parts(max_fields, uploads)
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": parts.begin,
                "on_header_field": parts.header_field,
                "on_header_value": parts.header_value,
                "on_header_end": parts.end_header,
                "on_part_data": parts.data,
                "on_part_end": parts.end,
            },
        )
        parser.write(content)
        parser.finalize()
    except UnicodeError:
        raise ServiceError("invalid_request", "the form is not UTF-8") from None
    except FormParserError:
        raise ServiceError("invalid_request", "the body is not a multipart form of its boundary") from None
    return parts.pairs


def _base_name(name: str) -> str:
    return name.replace("\\", "/").rpartition("/")[2]
