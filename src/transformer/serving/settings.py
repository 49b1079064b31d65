"""Settings of the server. The options of `transformer serve` and the tables of the reference are made from them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import AfterValidator

from transformer.options.fields import Count, Doc, Positive
from transformer.options.translation import Device, Precision

Seconds = Annotated[float, Gt(0)]


@dataclass(frozen=True)
class LimitResponse:
    """Response to a client that exceeds a limit."""

    text: str


ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\sA-Z/?#@*]+")
ROOT_PATH: Final = re.compile(r"/[^\s?#]*")
CLOSED: Final = LimitResponse("closed")
BAD_REQUEST, TOO_LARGE, TOO_MANY = LimitResponse("400"), LimitResponse("413"), LimitResponse("429")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on what clients may ask for."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    body_bytes: Annotated[Positive, Doc("size of a request's body"), TOO_LARGE] = 4 << 20
    characters: Annotated[Positive, Doc("characters of all texts of a request"), TOO_LARGE] = 200_000
    texts: Annotated[Positive, Doc("texts of a request"), TOO_LARGE] = 2048
    alternatives: Annotated[Positive, Doc("translations or continuations of a text"), BAD_REQUEST] = 10
    beam: Annotated[Positive, Doc("beam size"), BAD_REQUEST] = 10
    tokens: Annotated[Positive, Doc("tokens of a generated continuation"), BAD_REQUEST] = 4096
    queue_tokens: Annotated[
        Positive,
        Doc("estimated tokens of all waiting texts; a request is accepted whole, so the last one may exceed it"),
        TOO_MANY,
    ] = 500_000
    concurrent: Annotated[Count, Doc("requests of a client at a time; 0: no limit"), TOO_MANY] = 100
    per_minute: Annotated[
        Count,
        Doc("requests of a client in a minute, of which as many as fit 10 seconds may come at once; 0: no limit"),
        TOO_MANY,
    ] = 6000
    connections: Annotated[
        Positive, Doc("open connections; beyond it an idle one is closed"), LimitResponse("503 if none is idle")
    ] = 2048
    headers_bytes: Annotated[Positive, Doc("size of a request's headers"), LimitResponse("431")] = 64 << 10
    request_seconds: Annotated[
        Seconds, Doc("seconds until a request that is not finished is given up"), LimitResponse("504")
    ] = 300
    headers_seconds: Annotated[
        Seconds, Doc("seconds in which a connection must send its headers"), LimitResponse("408, closed")
    ] = 10
    body_seconds: Annotated[
        Seconds, Doc("seconds in which a connection must send its body"), LimitResponse("408, closed")
    ] = 60
    keep_alive_seconds: Annotated[Seconds, Doc("seconds until an idle connection is closed"), CLOSED] = 75
    shutdown_seconds: Annotated[Seconds, Doc("seconds that requests have to finish after SIGTERM"), CLOSED] = 300
    glossaries: Annotated[Count, Doc("stored glossaries of a client; 0 allows none"), BAD_REQUEST] = 100
    glossary_terms: Annotated[Positive, Doc("terms of a glossary"), BAD_REQUEST] = 10_000
    document_bytes: Annotated[Positive, Doc("size of a document"), TOO_LARGE] = 10 << 20
    document_characters: Annotated[Positive, Doc("characters to translate in a document"), TOO_LARGE] = 1_000_000
    document_seconds: Annotated[
        Seconds, Doc("seconds until the translation of a document is given up"), LimitResponse("504, or an error state")
    ] = 3600
    document_read_seconds: Annotated[
        Seconds, Doc("seconds in which a document must be read, and in which it must be written"), TOO_LARGE
    ] = 120
    document_memory_mb: Annotated[
        Positive, Doc("memory in MB that the process of a document may allocate"), TOO_LARGE
    ] = 1024
    documents: Annotated[
        Count,
        Doc(
            "documents of a client that wait, are translated or are kept; then the oldest translated one is deleted. "
            "0 allows none"
        ),
        TOO_MANY,
    ] = 20
    all_documents_bytes: Annotated[
        Positive, Doc("size of the documents of all clients that wait, are translated or are kept"), TOO_MANY
    ] = 256 << 20
    kept_seconds: Annotated[
        Seconds, Doc("seconds for which a translated document can be downloaded"), LimitResponse("404")
    ] = 1800


def _check_models(models: Mapping[str, str]) -> Mapping[str, str]:
    for name, source in models.items():
        if not name or name != name.strip() or not name.isprintable():
            raise ValueError(f"models: {name!r} cannot name a model; use printable characters without spaces around")
        if not source.strip():
            raise ValueError(f"models.{name}={source!r} is empty; give a model folder or the name of a model")
    return models


def _check_host(host: str) -> str:
    if not host.strip():
        raise ValueError(f"host={host!r} is empty; write 127.0.0.1, or 0.0.0.0 for all addresses of the machine")
    return host


def _check_origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if origin not in ("*", "null") and not ORIGIN.fullmatch(origin):
            message = "is not an origin, which browsers write as https://example.com, with the port if it has one"
            raise ValueError(f"cors: {origin!r} {message}, in lower case and without a path")
    return origins


def _check_root_path(path: str) -> str:
    if path and not ROOT_PATH.fullmatch(path):
        raise ValueError(f"root_path={path!r} is not a path from the root; write e.g. /mt")
    return path.rstrip("/")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of the server."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    models: Annotated[
        Mapping[str, str],
        MinLen(1),
        AfterValidator(_check_models),
        Doc("table of model folders, run folders or names of installed models, by the names that clients use"),
    ]
    host: Annotated[
        str, AfterValidator(_check_host), Doc("address to listen on; 0.0.0.0 is all addresses of the machine")
    ] = "127.0.0.1"
    port: Annotated[int, Ge(0), Le(65535), Doc("port to listen on; 0 chooses a free one")] = 5000
    workers: (
        Annotated[
            int,
            Ge(1),
            Le(64),
            Doc(
                "processes that compute for each loaded model, with one thread each; default: one per processor core "
                "up to 8, or 1 on a GPU"
            ),
        ]
        | None
    ) = None
    device: Device = "auto"
    precision: Precision = "auto"
    preload: Annotated[bool, Doc("load all models at the start; otherwise each at its first request")] = False
    memory_mb: Annotated[
        Count, Doc("memory in MB above which the least recently used models are unloaded; 0: no limit")
    ] = 0
    watch_seconds: Annotated[
        float, Ge(0), Doc("seconds between looks for changed model folders; 0 looks only after SIGHUP")
    ] = 0
    deterministic: Annotated[bool, Doc("translate each line alone, so that answers never depend on other requests")] = (
        False
    )
    beam: Annotated[Positive, Doc("beam size where a request names none")] = 1
    batch_tokens: Annotated[
        Positive, Doc("maximum estimated number of tokens in a batch; a beam of k counts each k times")
    ] = 4096
    keys: Annotated[Path | None, Doc("file of hashed API keys; without it, everybody may use the server")] = None
    cors: Annotated[
        tuple[str, ...],
        AfterValidator(_check_origins),
        Doc("origin, e.g. https://example.com, whose pages may use the server from a browser; * is all"),
    ] = ()
    proxies: Annotated[
        tuple[str, ...], Doc("address or network of a reverse proxy whose X-Forwarded-For is trusted")
    ] = ()
    root_path: Annotated[
        str, AfterValidator(_check_root_path), Doc("path under which a reverse proxy shows the server, e.g. /mt")
    ] = ""
    glossaries: Annotated[
        Path | None, Doc("folder in which stored glossaries are kept; without it, they are lost at the end")
    ] = None
    log: Annotated[Literal["json", "text", "none"], Doc("format of the log on standard error")] = "text"
    log_texts: Annotated[bool, Doc("write the texts of requests to the log")] = False
    page: Annotated[bool, Doc("serve the web page at /")] = True
    limits: Annotated[Limits, Doc("table of the limits below")] = Limits()
