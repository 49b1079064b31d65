"""The processes of one run: which of them this is, and what they tell each other."""

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
"""What torchrun, and every other launcher of PyTorch, sets in the environment of a rank."""
FRESH: Final = "transformer/fresh"
"""Where it holds the folder of a run that was started anew."""
STORE_KEY: Final = "transformer/part"
"""Where the launcher's store holds the name of the part that the ranks use."""
POLL_SECONDS: Final = 0.05
AFTERMATH_SECONDS: Final = 5.0
"""How long a rank that lost another waits to be ended, so that the launcher reports the other one as the cause."""


@dataclass(frozen=True)
class DistributedContext:
    """The ranks of a run. All of them call its methods, in the same order; a single process talks to no one.

    Attributes:
        rank: of this process, from 0.
        size: number of processes.
        device: of the messages, and of the model.
        strategy: "ddp" holds the whole model on every rank, "fsdp" a part.
        launcher: keeps what ranks say over torchrun's restarts; None without it.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = CPU_FLOAT32.device
    strategy: str = "ddp"
    launcher: Store | None = None

    @property
    def is_main(self) -> bool:
        """Rank 0: the one that writes, validates and speaks."""
        return self.rank == 0

    def items_of_rank(self, items: Sequence[T]) -> list[T]:
        """This rank's items: every `size`-th, so that micro-batch i is with rank i % size."""
        return list(items[self.rank :: self.size])

    def items_per_rank(self, n_items: int) -> int:
        """How many items the ranks with the most have; the others take part as often, with nothing to add."""
        return -(-n_items // self.size)

    def all_reduce_sum(self, *values: float | int) -> list[float]:
        """The sums of the given figures over all ranks, in float64."""
        if self.size == 1:
            return [float(value) for value in values]
        return self._reduced(values, dist.ReduceOp.SUM)

    def all_reduce_max(self, value: int) -> int:
        """The largest of a number over all ranks."""
        return value if self.size == 1 else int(self._reduced((value,), dist.ReduceOp.MAX)[0])

    def broadcast(self, value: Any) -> Any:
        """What rank 0 gives, a value of JSON; what the others give is not looked at."""
        if self.size == 1:
            return value
        content = json.dumps(value).encode() if self.is_main else b""
        size = torch.tensor(len(content), device=self.device)
        dist.broadcast(size, src=0)
        message = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else _room(int(size.item()))
        message = message.to(self.device)
        dist.broadcast(message, src=0)
        return json.loads(bytes(message.tolist()))

    def broadcast_across_restarts(self, name: str, value: str) -> str:
        """As `broadcast`; after a restart by the launcher, what rank 0 gave under that name at the first start."""
        if self.is_main and self.launcher is not None:
            if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and self.launcher.check([name]):
                value = self.launcher.get(name).decode()
            self.launcher.set(name, value)
        return self.broadcast(value)

    def barrier(self) -> None:
        """Waits until every rank is here."""
        if self.size > 1:
            dist.barrier()

    @contextmanager
    def main_first(self) -> Generator[None]:
        """A block that rank 0 runs to its end before the others begin, and that all leave together."""
        if not self.is_main:
            self.barrier()
        yield
        if self.is_main:
            self.barrier()
        self.barrier()

    def should_stop(self, interruption: Interruption) -> bool:
        """Lets every rank know of a signal that any of them got, and says whether there was one."""
        interruption.signal_number = self.all_reduce_max(interruption.signal_number or 0) or None
        return interruption.requested

    def _reduced(self, values: Sequence[float | int], operation: Any) -> list[float]:
        figures = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(figures, operation)
        return figures.tolist()


ALONE: Final = DistributedContext()


def _room(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8)


@contextmanager
def join_process_group(config: TrainingConfig) -> Generator[DistributedContext]:
    """Joins the ranks that a launcher started, with gloo on CPUs and NCCL on GPUs; alone without a launcher.

    After an error nothing is agreed on any more, so the process is not taken out of the group in good order: it ends,
    and the others see its connections close. The launcher is told the traceback of the rank that failed first.

    Raises:
        ConfigError: more ranks than GPUs on this machine, or a device that is not there.
        TrainingError: another rank ended.
    """
    timeout = timedelta(seconds=config.rank_seconds)
    if not all(name in os.environ for name in LAUNCHER_VARIABLES) or os.environ["WORLD_SIZE"] == "1":
        by_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
        yield replace(ALONE, launcher=next(rendezvous("env://", timeout=timeout))[0]) if by_torchrun else ALONE
        return
    device = _own_device(config)
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
    """The part of a launcher's store that holds nothing of ranks that have ended.

    torchrun keeps one store over its restarts, and a rank would look for the others where they were before. So rank 0
    names a part anew, waits for the mark that each rank has made in this start, and shows all marks; a rank that does
    not find its own among them has read an old name, and reads again.

    Args:
        store: shared by all ranks.
        rank: of this process.
        size: number of ranks.
        seconds: how long to wait for the others.

    Raises:
        TrainingError: rank 0 has not answered in time.
        DistStoreError: another rank has not come in time.
    """
    mark, deadline = uuid4().hex, time.monotonic() + seconds
    if rank == 0:
        store.set(STORE_KEY, mark)
        places = [f"{mark}/{other}" for other in range(1, size)]
        store.wait(places, timedelta(seconds=seconds))
        store.set(f"{mark}/all", " ".join(store.get(place).decode() for place in places))
        return PrefixStore(mark, store)
    while time.monotonic() < deadline:
        if store.check([STORE_KEY]):
            part = store.get(STORE_KEY).decode()
            store.set(f"{part}/{rank}", mark)
            if store.check([f"{part}/all"]) and mark in store.get(f"{part}/all").decode().split():
                return PrefixStore(part, store)
        time.sleep(POLL_SECONDS)
    raise TrainingError(f"rank 0 did not answer rank {rank} within training.rank_seconds={seconds:g}; look at its log")


def _own_device(config: TrainingConfig) -> torch.device:
    """The GPU that has the number of this rank on its machine, or the CPU."""
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    device = choose_backend(config.device, "float32").device
    if device.type != "cuda":
        return device
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"LOCAL_RANK={local_rank}, but this machine has {torch.cuda.device_count()} GPUs; start as many ranks "
            "(torchrun --nproc-per-node=gpu), or set training.device='cpu'"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def report_to_launcher(error: Exception) -> None:
    """Leaves the traceback where torchrun looks for it; an error that only tells that another rank ended is none.

    Raises:
        TrainingError: another rank ended.
    """
    if isinstance(error, dist.DistError) or "gloo" in str(error).lower():
        time.sleep(AFTERMATH_SECONDS)
        raise TrainingError(
            f"another rank ended or did not answer ({str(error).splitlines()[0]}); its own message tells why; the same "
            "command goes on from the newest checkpoint"
        ) from error
    from torch.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler

    ErrorHandler().record_exception(error)
