"""The process of documents: finds the texts of files that strangers have sent, and writes translations into them.

It works by a pool of processes with a limit on their memory. The server ends those that take too long.
"""

import os
import resource
import signal
import socket
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from transformer.documents.formats import PLAIN_TEXT, format_named
from transformer.errors import TransformerError
from transformer.pipelines.translation.documents import (
    MAX_PROBLEMS,
    DocumentOptions,
    DocumentTranslator,
    pieces_of,
)
from transformer.pipelines.translation.results import EMPTY_ALTERNATIVE, Translation
from transformer.runtime.allocator import trim_heap
from transformer.runtime.frames import Frame, Kind, decode_message, encode_message
from transformer.runtime.pool import serve_pool
from transformer.runtime.worker import Emit
from transformer.serving.engine.starting import Settings
from transformer.serving.engine.tasks import service_error
from transformer.serving.errors import ServiceError

MEMORY_ERROR: Final = ServiceError("too_large", "the file needs too much memory; split it", param="file")
NICENESS: Final = 5
"""Lowers the priority of documents below that of single sentences, for which somebody waits."""


def run(stream: socket.socket, settings: Settings) -> NoReturn:
    """Answers requests until the server closes the socket.

    The server receives STATUS frames as from `transformer.serving.engine.model_process.run`. Its REQUEST frames are
    those of `answer`.

    Args:
        stream: Socket that is connected to the server.
        settings: "documents" is the number of processes, "memory_bytes" what each may allocate.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        stream.sendall(_status(pid=os.getpid()))
        serve(stream, settings)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def serve(stream: socket.socket, settings: Settings) -> None:
    """Answers requests until the server closes the socket; see `run`."""
    stream.sendall(_status(facts={}))
    initialize = partial(_initialize, settings["memory_bytes"])
    serve_pool(answer, settings["documents"], stream, initialize, lambda pids: encode_message({"workers": pids}))


def _status(**content: Any) -> bytes:
    return Frame(Kind.STATUS, data=encode_message(content)).encode()


def _initialize(memory_bytes: int) -> None:
    os.nice(NICENESS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def answer(request: bytes, emit: Emit) -> bytes:
    """Reads a document, or writes translations into it.

    A request is a JSON object with the bytes of the document behind it: "task", "name", "format", "columns",
    "languages" (two tags, empty if not known) and "options" (fields of `DocumentOptions`).

    - The task "read" has "max_characters". Its result has the "lines" to translate, and "depends_on_languages": whether
      other languages have other lines.
    - The task "write" has "translations", each with its text, flags and confidence. Its result has a "report", and the
      document behind it.

    A result with "error" has that of `ServiceError.to_json` instead.
    """
    message = decode_message(request)
    try:
        result, content = (_read if message["task"] == "read" else _write)(message)
    except MemoryError:
        result, content = {"error": MEMORY_ERROR.to_json()}, b""
    except TransformerError as error:  # in which options are named as the command calls them
        text = str(error).replace("--all", "all=true").replace("--columns", "columns")
        result, content = {"error": ServiceError("invalid_request", text, param="file").to_json()}, b""
    except Exception as error:
        result, content = {"error": service_error(error).to_json()}, b""
    trim_heap()
    return encode_message(result, content)


def _read(message: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    options = DocumentOptions(**message["options"])
    document = _parse(message).in_languages(*message["languages"])
    lines = [line for segment in document.segments if options.selects(segment) for line in pieces_of(segment)]
    n_characters, limit = sum(map(len, lines)), message["max_characters"]
    if n_characters > limit:
        problem = f"{n_characters:,} characters to translate are more than the limit of {limit:,}; split the file"
        raise ServiceError("too_large", problem, param="file")
    return {"lines": lines, "depends_on_languages": document.between is not None}, b""


def _write(message: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    def translate(lines: Sequence[str]) -> list[Translation]:
        return [
            Translation((replace(EMPTY_ALTERNATIVE, text=text),), tuple(flags), confidence=confidence)
            for _, (text, flags, confidence) in zip(lines, message["translations"], strict=True)
        ]

    run = DocumentTranslator(translate, tuple(message["languages"]), options=DocumentOptions(**message["options"]))
    content, report = run(_parse(message), message["name"])
    report.problems = report.problems[:MAX_PROBLEMS]
    return {"report": report.to_json()}, content


def _parse(message: Mapping[str, Any]) -> Any:
    name = message["format"]
    form = PLAIN_TEXT if name == PLAIN_TEXT.name else format_named(name)
    return form.with_columns(message["columns"]).parse(message.get("content", b""), message["name"])
