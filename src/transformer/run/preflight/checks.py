"""Checks that a rank takes with the others; none of them raises, so that one table shows the trouble of all."""

import math
import os
import platform
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
import torch
import torch.distributed as dist

from transformer.data.dataset import pair_batch
from transformer.errors import TransformerError
from transformer.run.preflight.exchange import Exchange
from transformer.runtime.machine import machine
from transformer.sharding.leases import LeaseFolder
from transformer.storage.atomic import replace_text
from transformer.training.backend import choose_backend
from transformer.training.config import TrainingConfig
from transformer.training.distributed.data_parallel import distribute_model
from transformer.training.distributed.process_group import DistributedContext, join_process_group
from transformer.training.objectives.translation import TranslationObjective
from transformer.training.optim.adam import make_optimizer
from transformer.training.step import TrainingState, train_step
from transformer.transformer import build_transformer

Facts = dict[str, Any]
VISIBLE_SECONDS: Final = 5.0
"""Time after which a file that another rank wrote should be seen."""
REDUCED_BYTES: Final = 16 << 20
REDUCTIONS: Final = 3
VOCABULARY, LENGTH, PAIRS = 1000, 24, 32


def local_facts(device: str) -> Facts:
    """Returns host, device and versions of this rank, and why its device cannot be used."""
    facts: Facts = {"host": socket.gethostname(), "device": "none", "trouble": ""}
    try:
        chosen, local_rank = choose_backend(device, "float32").device, int(os.environ.get("LOCAL_RANK", "0"))
        facts["device"] = torch.cuda.get_device_name() if chosen.type == "cuda" else "CPU"
        if chosen.type == "cuda" and local_rank >= torch.cuda.device_count():
            facts["trouble"] = (
                f"has no GPU for its number {local_rank} on this machine, which has {torch.cuda.device_count()}; start "
                "one rank for each GPU"
            )
    except TransformerError as error:
        facts["trouble"] = f"has no such device: {error}"
    facts["versions"] = {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "transformer": version("transformer"),
        "kernels": str(machine()["kernels"]),
    }
    return facts


def check_folder(exchange: Exchange, folder: Path) -> Facts:
    """Writes, reads, renames and locks files in a folder together with the other ranks.

    Returns:
        `trouble`, what this rank cannot do; `seconds`, the longest time until it saw a file; `locked`, whether it took
        the lock, which one rank has to.
    """
    facts: Facts = {"trouble": "", "seconds": 0.0, "locked": False}
    path, token = _shared_folder(exchange, folder, facts)
    leases = None
    if not facts["trouble"]:
        try:
            facts["seconds"] = _seconds_until(lambda: _read(path / "token") == token)
            replace_text(path / f"rank-{exchange.rank}", token)
            leases = LeaseFolder(path / "locks")
            facts["locked"] = leases.acquire("lock")
        except TimeoutError:
            facts["trouble"] = (
                f"does not see in {folder} what rank 0 wrote there; name a folder that all machines share by --folder"
            )
        except (OSError, TransformerError) as error:
            facts["trouble"] = f"cannot write in {folder}: {error}"
    wrote = exchange.gather("wrote", not facts["trouble"])
    writers = exchange.broadcast("writers", [rank for rank, has_written in wrote.items() if has_written])
    for rank in () if facts["trouble"] else writers:
        try:
            seconds = _seconds_until(lambda rank=rank: _read(path / f"rank-{rank}") == token)
            facts["seconds"] = max(facts["seconds"], seconds)
        except TimeoutError:
            facts["trouble"] = f"does not see in {folder} what rank {rank} wrote there"
            break
    if leases is not None:
        leases.close()
    exchange.gather("saw", True)
    if exchange.is_main:
        shutil.rmtree(path, ignore_errors=True)
    return facts


def _shared_folder(exchange: Exchange, folder: Path, facts: Facts) -> tuple[Path, str]:
    """Makes the folder of this check on rank 0; returns its path and a text that only rank 0 knows before."""
    name, token = f".preflight-{uuid4().hex}", uuid4().hex
    if exchange.is_main:
        try:
            (folder / name).mkdir(parents=True)
            replace_text(folder / name / "token", token)
        except (OSError, TransformerError) as error:
            facts["trouble"] = f"cannot write in {folder}: {error}"
    name, token, failed = exchange.broadcast("folder", [name, token, bool(facts["trouble"])])
    if failed and not exchange.is_main:
        facts["trouble"] = "could not check the folder, because rank 0 cannot write there"
    return folder / name, token


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8")
    return ""


def _seconds_until(is_seen: Callable[[], bool]) -> float:
    """Returns the time until a condition holds.

    Raises:
        TimeoutError: It does not hold in time.
    """
    started = time.monotonic()
    while not is_seen():
        if time.monotonic() - started > VISIBLE_SECONDS:
            raise TimeoutError
        time.sleep(0.1)
    return time.monotonic() - started


def check_communication(device: str, seconds: float) -> Facts:
    """Connects the ranks, measures an all-reduce and takes two training steps.

    Returns:
        `trouble`; `gigabytes_per_second` that a rank sends and receives in an all-reduce, None with one rank;
        `step_seconds` of the second step; `weights`, a sum over the weights after it, which all ranks have to share.
    """
    facts: Facts = {"trouble": "", "gigabytes_per_second": None, "step_seconds": 0.0, "weights": ""}
    stage = "reach the other ranks"
    try:
        config = TrainingConfig.model_validate({"device": device, "rank_seconds": seconds})
        with join_process_group(config) as context:
            if context.size > 1:
                facts["gigabytes_per_second"] = _all_reduce_rate(context)
            stage = "take a training step"
            facts["step_seconds"], facts["weights"] = _training_steps(context)
    except (TransformerError, RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        facts["trouble"] = f"cannot {stage}: {reason}"
    return facts


def _all_reduce_rate(context: DistributedContext) -> float:
    values = torch.zeros(REDUCED_BYTES // 4, device=context.device)
    dist.all_reduce(values)  # the first one connects the ranks
    context.barrier()
    started = time.perf_counter()
    for _ in range(REDUCTIONS):
        dist.all_reduce(values)
    context.barrier()  # also waits for the GPU
    if context.device.type == "cuda":
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - started) / REDUCTIONS
    return 2 * (context.size - 1) / context.size * REDUCED_BYTES / seconds / 1e9


def _training_steps(context: DistributedContext) -> tuple[float, str]:
    """Takes two steps with a small model on pairs that differ by rank; returns the time of the second one."""
    torch.manual_seed(1)
    model = build_transformer(VOCABULARY, VOCABULARY, LENGTH + 1, LENGTH + 1, d_model=64, N=2, h=4, d_ff=128, dropout=0)
    objective = TranslationObjective(model, 0.1).to(context.device)
    distributed = distribute_model(objective, model, context)
    backend = choose_backend(context.device.type, "float32")
    state = TrainingState(distributed.objective, make_optimizer(distributed.model), 0, 1, backend, context=context)
    draw, seconds = np.random.default_rng(context.rank), 0.0
    for _ in range(2):
        rows = [[draw.integers(4, VOCABULARY, LENGTH).astype(np.int32) for _ in range(PAIRS)] for _ in range(2)]
        started = time.perf_counter()
        train_step(state, [pair_batch(rows[0], rows[1])], 1e-3, 1.0)
        seconds = time.perf_counter() - started
    weights = math.fsum(parameter.double().sum().item() for parameter in distributed.model.parameters())
    return seconds, repr(weights)
