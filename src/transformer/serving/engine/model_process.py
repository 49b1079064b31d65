"""The process of a model: loads it, and answers requests with a pool of processes that share its memory."""

import json
import os
import signal
import socket
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import torch

from transformer.errors import TransformerError
from transformer.pipelines.auto import load
from transformer.runtime.allocator import freeze_gc, retain_heap
from transformer.runtime.compute_worker import end_batch, initialize_compute_worker
from transformer.runtime.frames import Frame, Kind
from transformer.runtime.pool import serve_pool
from transformer.runtime.worker import Emit, answer_requests
from transformer.serving.engine.description import describe
from transformer.serving.engine.starting import Settings
from transformer.serving.engine.tasks import run_task, service_error, stream_task
from transformer.serving.interfaces import Item

MAX_PROBLEM: Final = 2000
"""Maximum number of characters of an error message."""
NICENESS: Final = 1
"""Lowers the priority of workers a little: the process that answers clients need not wait for a core, and beside other
processes that compute they still get almost an equal share."""


def run(stream: socket.socket, settings: Settings) -> NoReturn:
    """Describes a model, or loads it and answers requests until the server closes the socket.

    The server receives STATUS frames with JSON objects: {"pid"}; {"facts"} with those of `describe` and, of a loaded
    model, the "device", or {"problem"}; then {"workers"} with the ids of all workers whenever they change. Its REQUEST
    frames are {"task", "items", "options", "is_stream"}. The RESULT is {"results": [...]}, or {"error"} if all fail.
    Results that are ready long before the others are a PART of lists of their place and the result; the RESULT has null
    in these places. A stream has a PART for each part of a text, and ends with {} or {"error"}.

    Args:
        stream: Socket that is connected to the server.
        settings: "path" of the model; to load it, also "precision", "device", "deterministic" and "workers".
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        _send_status(stream, pid=os.getpid())
        if "workers" not in settings:
            _describe(stream, settings)
        elif (pipeline := _load(stream, settings)) is not None:
            _answer_requests(pipeline, stream, settings["workers"])
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _describe(stream: socket.socket, settings: Settings) -> None:
    try:
        facts = describe(settings["path"])
    except Exception as error:
        _send_problem(stream, error, settings["path"])
    else:
        _send_status(stream, facts=facts)


def _load(stream: socket.socket, settings: Settings) -> Any:
    """Loads the pipeline of a model; sends the error to the server and returns None if it cannot be loaded."""
    torch.set_num_threads(1)
    retain_heap()
    try:
        facts = describe(settings["path"])
        translates = facts["kind"] == "encoder-decoder"
        options: dict[str, Any] = {"deterministic": True} if settings["deterministic"] and translates else {}
        options |= {name: settings[name] for name in ("precision", "device")}
        pipeline = load(Path(settings["path"]), workers=1, **options)
    except Exception as error:
        _send_problem(stream, error, settings["path"])
        return None
    _send_status(stream, facts={"device": _device(pipeline), **facts})
    return pipeline


def _device(pipeline: Any) -> str:
    return str(pipeline.device.type) if hasattr(pipeline, "device") else "cpu"


def _answer_requests(pipeline: Any, stream: socket.socket, n_workers: int) -> None:
    """Answers requests with a pool; on a GPU, whose memory forked processes cannot share, in this process."""
    answer = partial(_answer, pipeline)
    if _device(pipeline) == "cpu":
        serve_pool(answer, n_workers, stream, _initialize_worker, lambda pids: _status(workers=pids))
    else:
        _initialize_worker()
        freeze_gc()
        _send_status(stream, workers=[os.getpid()])
        answer_requests(answer, stream)


def _initialize_worker() -> None:
    os.nice(NICENESS)
    initialize_compute_worker()


def _answer(pipeline: Any, request: bytes, emit: Emit) -> bytes:
    message = json.loads(request)
    items = [Item(**fields) for fields in message["items"]]
    answer: dict[str, Any] = {}
    try:
        if message["is_stream"]:
            for part in stream_task(pipeline, items[0], message["options"]):
                if not emit(json.dumps(part).encode()):
                    break
        else:
            sent: set[int] = set()

            def send(results: Mapping[int, dict[str, Any]]) -> None:
                emit(json.dumps([*results.items()]).encode())
                sent.update(results)

            results = run_task(pipeline, message["task"], items, message["options"], send)
            answer["results"] = [None if i in sent else result for i, result in enumerate(results)]
    except ConnectionError:
        raise
    except Exception as error:
        answer["error"] = service_error(error).to_json()
    end_batch()
    return json.dumps(answer).encode()


def _send_problem(stream: socket.socket, error: Exception, path: str) -> None:
    if isinstance(error, TransformerError):
        problem = str(error)
    else:
        traceback.print_exception(error)
        problem = f"{path}: {type(error).__name__}: {error}"
    _send_status(stream, problem=problem[:MAX_PROBLEM])


def _send_status(stream: socket.socket, **content: Any) -> None:
    stream.sendall(Frame(Kind.STATUS, data=_status(**content)).encode())


def _status(**content: Any) -> bytes:
    return json.dumps(content).encode()
