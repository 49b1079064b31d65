"""A host process: loads the model of one folder, and forks workers that share its memory."""

import ctypes
import os
import signal
import socket
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import torch

from transformer.errors import TransformerError
from transformer.pipelines.auto import load
from transformer.runtime.allocator import retain_heap
from transformer.serving.engine import worker
from transformer.serving.engine.description import describe
from transformer.serving.engine.messages import MAX_PROBLEM, receive_control, send_control

PR_SET_PDEATHSIG: Final = 1
"""Option of `prctl`: the signal that this process gets when its parent ends."""


def run_host(control: socket.socket, settings: Mapping[str, Any]) -> NoReturn:
    """Loads a model and forks workers whenever the server asks for one; ends when the socket is closed.

    The server receives {"type": "started", "pid"}; then {"type": "loaded", "device"} with the facts of `describe`, or
    {"type": "failed", "problem"}. Each {"type": "fork"} that it sends from then on starts a worker, and is answered by
    {"type": "worker", "pid"} with a socket that is connected to the worker.

    Args:
        control: Socket that is connected to the server.
        settings: "path", "precision", "device" and "deterministic".
    """
    try:
        pipeline = _load(control, settings)
        if pipeline is not None:
            _fork_workers(pipeline, control)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _load(control: socket.socket, settings: Mapping[str, Any]) -> Any:
    """Returns the pipeline of a model; None if it cannot be loaded, which the server gets a message about."""
    send_control(control, {"type": "started", "pid": os.getpid()})
    torch.set_num_threads(1)
    retain_heap()
    try:
        facts = describe(settings["path"])
        translates = facts["kind"] == "encoder-decoder"
        options: dict[str, Any] = {"deterministic": True} if settings["deterministic"] and translates else {}
        device = settings["device"] if translates else "auto"
        pipeline = load(Path(settings["path"]), workers=1, precision=settings["precision"], device=device, **options)
    except Exception as error:
        if not isinstance(error, TransformerError):
            traceback.print_exc()
        problem = str(error) if isinstance(error, TransformerError) else f"{type(error).__name__}: {error}"
        send_control(control, {"type": "failed", "problem": problem[:MAX_PROBLEM]})
        return None
    send_control(control, {"type": "loaded", "device": _device(pipeline), **facts})
    return pipeline


def _device(pipeline: Any) -> str:
    return str(pipeline.device.type) if hasattr(pipeline, "device") else "cpu"


def _fork_workers(pipeline: Any, control: socket.socket) -> None:
    """Forks workers on request; on a GPU, whose memory forked processes cannot share, the host is the worker."""
    while receive_control(control) is not None:
        ours, theirs = socket.socketpair()
        if _device(pipeline) != "cpu":
            send_control(control, {"type": "worker", "pid": os.getpid()}, ours)
            ours.close()
            worker.serve(pipeline, theirs)
            return
        parent = os.getpid()
        if not (pid := os.fork()):
            control.close()
            ours.close()
            _run_worker(pipeline, theirs, parent)
        theirs.close()
        send_control(control, {"type": "worker", "pid": pid}, ours)
        ours.close()


def _run_worker(pipeline: Any, stream: socket.socket, parent: int) -> NoReturn:
    """Runs a worker in a process that was just forked; it is killed when the host ends."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            worker.serve(pipeline, stream)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
