"""The web page at `/`, which translates as one types. Its files are in `serving/page`."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.responses import Response

from transformer.serving.errors import ServiceError
from transformer.serving.operations import Call, Operation
from transformer.serving.routes.health import error_form
from transformer.style import css_variables

INDEX: Final = "index.html"
CONTENT_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Content types by the extension of a file; other files are not served."""
SECURITY_POLICY: Final = "; ".join([
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
    "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
    "trusted-types 'none'",
])  # fmt: skip
"""Content-Security-Policy: no inline code, no other origin, and no text of a user becomes HTML."""
HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page.

    Attributes:
        content: Its bytes.
        content_type: Value of the header Content-Type.
        etag: Strong validator made from the content.
    """

    content: bytes
    content_type: str
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """Returns the files of the page by their names."""
    page: dict[str, PageFile] = {}
    for file in files("transformer.serving").joinpath("page").iterdir():
        extension = file.name[file.name.rfind(".") :]
        if extension in CONTENT_TYPES:
            content = file.read_bytes()
            if extension == ".css":
                content = css_variables().encode() + content
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            page[file.name] = PageFile(content, CONTENT_TYPES[extension], etag)
    return page


async def index(call: Call) -> Response:
    """Answers with the page itself."""
    return _response(call, page_files()[INDEX])


async def page_file(call: Call) -> Response:
    """Answers with a script, the style or the icon of the page."""
    file = page_files().get(call.request.path_params["name"])
    if file is None:
        raise ServiceError("not_found", "the page has no such file")
    return _response(call, file)


def _response(call: Call, file: PageFile) -> Response:
    """Returns a file, or status 304 if the browser has it."""
    headers = {**HEADERS, "ETag": file.etag}
    known = (tag.strip().removeprefix("W/") for tag in call.request.headers.get("if-none-match", "").split(","))
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.content_type, headers=headers)


OPERATIONS: Final = (
    Operation(
        "GET", "/", "Web page for translating", index, error_form,
        media_type="text/html", interface="operation", is_open=True,
    ),
    Operation(
        "GET", "/page/{name}", "Scripts, style and icon of the web page", page_file, error_form,
        media_type="text/plain", interface="operation", is_open=True, errors=(404,),
    ),
)  # fmt: skip
