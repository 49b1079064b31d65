"""Settings of the server, from command-line flags and a TOML file."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(_Section):
    """Limits on what clients may ask for; 0 switches a limit off where its field allows 0.

    Attributes:
        body_bytes: Size of a request's body.
        characters: Characters of all texts of a request.
        texts: Texts of a request.
        alternatives: Translations or continuations of a text.
        beam: Beam size.
        tokens: Tokens of a generated continuation.
        queue_tokens: Estimated tokens of all waiting texts; beyond it, requests are answered with 429. Requests are
            accepted whole, so the last one may exceed it.
        concurrent: Requests of a client at a time; 0 for unlimited.
        per_minute: Requests of a client in a minute, with bursts of as many in 10 seconds; 0 for unlimited.
        connections: Open connections.
        headers_bytes: Size of a request's headers.
        request_seconds: Time until a request is answered with 504.
        headers_seconds: Time until a connection that has not sent its headers is closed.
        body_seconds: Time until a connection that has not sent its body is closed.
        keep_alive_seconds: Time until an idle connection is closed.
        shutdown_seconds: Time that requests have to finish after SIGTERM.
        glossaries: Stored glossaries of a client.
        glossary_terms: Terms of a glossary.
    """

    body_bytes: Positive = 4 << 20
    characters: Positive = 200_000
    texts: Positive = 2048
    alternatives: Positive = 10
    beam: Positive = 10
    tokens: Positive = 4096
    queue_tokens: Positive = 500_000
    concurrent: Count = 100
    per_minute: Count = 6000
    connections: Positive = 2048
    headers_bytes: Positive = 64 << 10
    request_seconds: Seconds = 300
    headers_seconds: Seconds = 10
    body_seconds: Seconds = 60
    keep_alive_seconds: Seconds = 75
    shutdown_seconds: Seconds = 300
    glossaries: Count = 100
    glossary_terms: Positive = 10_000


class ServerSettings(_Section):
    """Settings of the server.

    Attributes:
        models: Model folders, run folders or names of installed models, by the names that clients use.
        host: Address to listen on.
        port: Port to listen on; 0 chooses a free one.
        workers: Processes that compute for each loaded model; None is one per processor core, up to 8, and 1 on a GPU.
        device: "auto", "cpu" or "cuda".
        precision: "auto", "float32", "bf16" or "int8".
        preload: Whether all models are loaded before the first request; otherwise each at its first request.
        memory_mb: Memory in MB above which the least recently used models are unloaded; 0 for unlimited.
        watch_seconds: Interval in which model folders are checked for changes; 0 checks on SIGHUP alone.
        deterministic: Whether each line is translated alone, so that answers do not depend on other requests.
        beam: Beam size where a request names none; at least 8 with terms or protected spans.
        batch_tokens: Maximum estimated number of tokens in a batch; a beam of k counts each k times.
        keys: File of hashed API keys, see `transformer.serving.keys`; without it, everybody may use the server.
        cors: Origins whose pages may use the server from a browser; "*" is all of them.
        proxies: Addresses or networks of reverse proxies whose X-Forwarded-For is trusted.
        root_path: Path under which a reverse proxy shows the server, e.g. "/translate".
        glossaries: Folder in which glossaries of clients are kept; None keeps them in memory.
        log: Format of the log on standard error: "json", "text" or "none".
        log_texts: Whether the log contains the texts of requests.
        page: Whether the web page is served at /.
        limits: Limits on what clients may ask for.
    """

    models: dict[str, str] = Field(min_length=1)
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 5000
    workers: Annotated[int, Field(ge=1, le=64)] | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bf16", "int8"] = "auto"
    preload: bool = False
    memory_mb: Count = 0
    watch_seconds: Annotated[float, Field(ge=0)] = 0
    deterministic: bool = False
    beam: Positive = 1
    batch_tokens: Positive = 4096
    keys: Path | None = None
    cors: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    root_path: str = ""
    glossaries: Path | None = None
    log: Literal["json", "text", "none"] = "text"
    log_texts: bool = False
    page: bool = True
    limits: Limits = Limits()
