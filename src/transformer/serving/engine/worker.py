"""A worker process: runs batches and streams with a loaded model until its socket is closed."""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Final

import torch

from transformer.decoding.worker_pool import TRIM_INTERVAL
from transformer.runtime.allocator import freeze_gc, retain_heap, trim_heap
from transformer.serving.engine.messages import Message, receive, send
from transformer.serving.engine.tasks import run_task, service_error, stream_task
from transformer.serving.interfaces import Item

NICENESS: Final = 5
"""Lowers the priority of workers, so that the process that answers clients need not wait for a core."""


def serve(pipeline: Any, stream: socket.socket) -> None:
    """Answers requests until the server closes the socket.

    Requests:
        {"type": "batch", "task", "items", "options"}: the answer is {"results": [...]}, or {"error"} if all fail.
        {"type": "stream", "items": [one], "options"}: the answers are {"part"}..., and last {"end": True} with an
            "error" if it failed.
        {"type": "cancel"}: ends the stream that is running, if any; otherwise nothing.

    Args:
        pipeline: `Translator`, `Generator` or `TextEncoder`.
        stream: Socket that is connected to the server.
    """
    os.nice(NICENESS)
    torch.set_num_threads(1)
    retain_heap()
    freeze_gc()
    # The server has ended if a message cannot be sent.
    with suppress(ConnectionError), torch.inference_mode():
        for number in count(1):
            message = receive(stream)
            if message is None:
                return
            _answer(pipeline, stream, message)
            if number % TRIM_INTERVAL == 0:
                trim_heap()


def _answer(pipeline: Any, stream: socket.socket, message: Message) -> None:
    if message["type"] == "batch":
        send(stream, _run(pipeline, message))
    elif message["type"] == "stream":
        _run_stream(pipeline, stream, message)


def _run(pipeline: Any, message: Message) -> Message:
    items = [Item(**fields) for fields in message["items"]]
    try:
        return {"results": run_task(pipeline, message["task"], items, message["options"])}
    except Exception as error:
        return {"error": service_error(error).to_json()}


def _run_stream(pipeline: Any, stream: socket.socket, message: Message) -> None:
    (item,) = [Item(**fields) for fields in message["items"]]
    end: dict[str, Any] = {"end": True}
    try:
        _send_parts(stream_task(pipeline, item, message["options"]), stream)
    except ConnectionError:
        raise
    except Exception as error:
        end["error"] = service_error(error).to_json()
    send(stream, end)


def _send_parts(parts: Iterator[Message], stream: socket.socket) -> None:
    """Sends the parts of a stream until it ends, or any message (which can only be "cancel") arrives."""
    for part in parts:
        if select.select([stream], [], [], 0)[0]:
            receive(stream)
            return
        send(stream, {"part": part})
