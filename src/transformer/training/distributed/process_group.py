"""The process group of a run: ranks, collective operations and the rendezvous."""

import json
import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from transformer.errors import ConfigError, TrainingError
from transformer.training.backend import CPU_FLOAT32, choose_backend
from transformer.training.config import TrainingConfig
from transformer.training.interruption import Interruption

T = TypeVar("T")
LAUNCHER_VARIABLES: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that torchrun and other launchers of PyTorch set for each rank."""
FRESH: Final = "transformer/fresh"
"""Key of the launcher's store for the folder of a run that was started with --fresh."""
PREFIX_KEY: Final = "transformer/part"
"""Key of the launcher's store for the prefix that the ranks use."""
POLL_SECONDS: Final = 0.05
AFTERMATH_SECONDS: Final = 5.0
"""Seconds that a rank that lost another waits to be ended, so that the launcher reports the other rank as the cause."""


@dataclass(frozen=True)
class DistributedContext:
    """The ranks of a run and their collective operations, which do nothing in a single process.

    All ranks must call the collective methods, in the same order.

    Attributes:
        rank: Rank of this process, from 0.
        size: Number of processes.
        device: Device of the model and of messages between ranks.
        strategy: "ddp" for a full model on every rank, "fsdp" for a shard on each.
        launcher: Store that survives restarts by torchrun; None without torchrun.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = CPU_FLOAT32.device
    strategy: str = "ddp"
    launcher: Store | None = None

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes files, validates and prints."""
        return self.rank == 0

    def items_of_rank(self, items: Sequence[T]) -> list[T]:
        """Returns every `size`-th item from index `rank` on, so that micro-batch i belongs to rank i % size."""
        return list(items[self.rank :: self.size])

    def max_items_per_rank(self, n_items: int) -> int:
        """Returns the largest number of items of a rank; every rank must take part in as many rounds."""
        return -(-n_items // self.size)

    def all_reduce_sum(self, *values: float | int) -> list[float]:
        """Sums each value over all ranks, in float64."""
        if self.size == 1:
            return [float(value) for value in values]
        return self._all_reduce(values, dist.ReduceOp.SUM)

    def all_reduce_tensor(self, values: Tensor) -> Tensor:
        """Sums a tensor on the device over all ranks in place, without waiting for a GPU; returns it."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def all_reduce_max(self, value: int) -> int:
        """Returns the maximum of a value over all ranks."""
        return value if self.size == 1 else int(self._all_reduce((value,), dist.ReduceOp.MAX)[0])

    def broadcast(self, value: Any) -> Any:
        """Returns the JSON value that rank 0 passes; the values of other ranks are ignored."""
        if self.size == 1:
            return value
        payload = json.dumps(value).encode() if self.is_main else b""
        size = torch.tensor(len(payload), device=self.device)
        dist.broadcast(size, src=0)
        message = torch.frombuffer(bytearray(payload), dtype=torch.uint8) if payload else _buffer(int(size.item()))
        message = message.to(self.device)
        dist.broadcast(message, src=0)
        return json.loads(bytes(message.tolist()))

    def broadcast_across_restarts(self, name: str, value: str) -> str:
        """Same as `broadcast`, but returns the value of the first start after a restart by the launcher."""
        if self.is_main and self.launcher is not None:
            if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and self.launcher.check([name]):
                value = self.launcher.get(name).decode()
            self.launcher.set(name, value)
        return self.broadcast(value)

    def barrier(self) -> None:
        """Waits until every rank calls this method."""
        if self.size > 1:
            dist.barrier()

    @contextmanager
    def main_first(self) -> Generator[None]:
        """Runs the block on rank 0 before the other ranks; all ranks leave it together."""
        if not self.is_main:
            self.barrier()
        yield
        if self.is_main:
            self.barrier()
        self.barrier()

    def should_stop(self, interruption: Interruption) -> bool:
        """Whether any rank has received a signal before this call; shares its number with all ranks.

        A signal that arrives while this rank waits for the others is unknown to them, and is shared by the next call.
        """
        number = self.all_reduce_max(interruption.signal_number or 0)
        if number:
            interruption.signal_number = number
        return number > 0

    def _all_reduce(self, values: Sequence[float | int], operation: Any) -> list[float]:
        reduced = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(reduced, operation)
        return reduced.tolist()


SINGLE_PROCESS: Final = DistributedContext()


def _buffer(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8)


@contextmanager
def join_process_group(config: TrainingConfig) -> Generator[DistributedContext]:
    """Joins the process group that a launcher started, with gloo on CPUs and NCCL on GPUs; without one, runs alone.

    After an error the ranks are no longer synchronized, so the group is not destroyed: the process ends, and the others
    see its connections close. The launcher receives the traceback of the rank that failed first.

    Raises:
        ConfigError: There are more ranks than GPUs on this machine, or the device is not available.
        TrainingError: Another rank ended.
    """
    timeout = timedelta(seconds=config.rank_seconds)
    if not all(name in os.environ for name in LAUNCHER_VARIABLES) or os.environ["WORLD_SIZE"] == "1":
        by_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
        yield (
            replace(SINGLE_PROCESS, launcher=next(rendezvous("env://", timeout=timeout))[0])
            if by_torchrun
            else SINGLE_PROCESS
        )
        return
    device = _local_device(config)
    is_gpu = device.type == "cuda"
    try:
        store = next(rendezvous("env://", timeout=timeout))[0]
        ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        context = DistributedContext(*ranks, device, config.distribution, store)
        dist.init_process_group(
            "nccl" if is_gpu else "gloo",
            store=restart_safe_store(store, context.rank, context.size, config.rank_seconds),
            rank=context.rank,
            world_size=context.size,
            timeout=timeout,
            device_id=device if is_gpu else None,
        )
        yield context
    except Exception as error:
        report_to_launcher(error)
        raise
    context.barrier()
    dist.destroy_process_group()


def restart_safe_store(store: Store, rank: int, size: int, seconds: float) -> Store:
    """Returns a prefix of the launcher's store that contains no entries of ranks that have ended.

    torchrun keeps one store over its restarts, in which a rank would find the old addresses of the others. Rank 0
    therefore publishes a new prefix, waits for a token from each rank of this start, and publishes all tokens. A rank
    that does not find its own token among them has read an old prefix and reads it again.

    Args:
        store: Store shared by all ranks.
        rank: Rank of this process.
        size: Number of ranks.
        seconds: Seconds to wait for the other ranks.

    Raises:
        TrainingError: Rank 0 has not answered in time.
        DistStoreError: Another rank has not joined in time.
    """
    token, deadline = uuid4().hex, time.monotonic() + seconds
    if rank == 0:
        store.set(PREFIX_KEY, token)
        keys = [f"{token}/{other}" for other in range(1, size)]
        store.wait(keys, timedelta(seconds=seconds))
        store.set(f"{token}/all", " ".join(store.get(key).decode() for key in keys))
        return PrefixStore(token, store)
    while time.monotonic() < deadline:
        if store.check([PREFIX_KEY]):
            prefix = store.get(PREFIX_KEY).decode()
            store.set(f"{prefix}/{rank}", token)
            if store.check([f"{prefix}/all"]) and token in store.get(f"{prefix}/all").decode().split():
                return PrefixStore(prefix, store)
        time.sleep(POLL_SECONDS)
    raise TrainingError(f"rank 0 did not answer rank {rank} within training.rank_seconds={seconds:g}; check its log")


def _local_device(config: TrainingConfig) -> torch.device:
    """Returns the GPU with the local rank of this process, or the CPU."""
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    device = choose_backend(config.device, "float32").device
    if device.type != "cuda":
        return device
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"LOCAL_RANK={local_rank}, but this machine has {torch.cuda.device_count()} GPUs; start one rank per GPU "
            "(torchrun --nproc-per-node=gpu), or set training.device='cpu'"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def report_to_launcher(error: Exception) -> None:
    """Writes the traceback for torchrun, unless the error is only a consequence of another rank's end.

    Raises:
        TrainingError: Another rank ended.
    """
    if isinstance(error, dist.DistError) or "gloo" in str(error).lower():
        time.sleep(AFTERMATH_SECONDS)
        raise TrainingError(
            f"another rank ended or did not answer ({str(error).splitlines()[0]}); its own message gives the reason; "
            "the same command resumes from the latest checkpoint"
        ) from error
    from torch.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler

    ErrorHandler().record_exception(error)
