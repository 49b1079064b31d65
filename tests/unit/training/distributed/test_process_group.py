"""Ranks: rendezvous, shares of the work, and reports to the launcher; without a second process."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore

from transformer.cli import train as command
from transformer.errors import ConfigError, TrainingError
from transformer.training.config import TrainingConfig
from transformer.training.distributed import process_group as distributed
from transformer.training.distributed.process_group import (
    DistributedContext,
    join_process_group,
    report_to_launcher,
    restart_safe_store,
)


def test_ranks_that_were_started_again_meet_in_a_clean_part_of_the_store() -> None:
    """Catches a rank that reads entries of the store from before a restart."""
    store = HashStore()
    for start in range(3):
        with ThreadPoolExecutor(3) as pool:
            parts = [pool.submit(restart_safe_store, store, rank, 3, 60.0) for rank in (1, 2)]
            time.sleep(0.15)  # long enough to read the key of the previous start
            parts.append(pool.submit(restart_safe_store, store, 0, 3, 60.0))
        assert not parts[0].result().check(["met"])
        parts[1].result().set("met", str(start))
        assert parts[2].result().get("met") == str(start).encode()


def test_a_rank_does_not_wait_for_ever() -> None:
    """Catches a rank that hangs because rank 0 never joined."""
    with pytest.raises(
        TrainingError, match=r"rank 0 did not answer rank 1 within training.rank_seconds=0.1; check its"
    ):
        restart_safe_store(HashStore(), 1, 2, 0.1)


def test_more_ranks_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches two ranks on one GPU, which NCCL refuses much later and less clearly."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name, value in {"RANK": 2, "WORLD_SIZE": 3, "LOCAL_RANK": 2, "MASTER_ADDR": "x", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    message = "LOCAL_RANK=2, but this machine has 2 GPUs; start one rank per GPU"
    with pytest.raises(ConfigError, match=message), join_process_group(TrainingConfig()):
        pass


def test_a_rank_that_lost_another_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches a connection closed by a dead rank that is reported as the cause."""
    monkeypatch.setattr(distributed, "AFTERMATH_SECONDS", 0.0)
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    with pytest.raises(TrainingError, match=r"another rank ended or did not answer .*resumes from the latest checkp"):
        report_to_launcher(RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer"))
    assert not (tmp_path / "error.json").exists()
    report_to_launcher(ValueError("mine"))
    assert "ValueError: mine" in (tmp_path / "error.json").read_text()


@pytest.mark.parametrize(("code", "is_main", "naps"), [(0, False, []), (143, True, []), (143, False, [5.0])])
def test_the_main_rank_has_the_last_word(
    monkeypatch: pytest.MonkeyPatch, code: int, is_main: bool, naps: list[float]
) -> None:
    """Catches a rank that exits with an error before the main rank reports it: the launcher then ends that one too."""
    slept, codes = list[float](), list[int]()
    monkeypatch.setattr(command.time, "sleep", slept.append)
    monkeypatch.setattr(command.os, "_exit", codes.append)
    command.end_rank(code, is_main)
    assert (slept, codes) == (naps, [code])


def test_one_process_joins_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a process group for a single process, which a launcher may also start."""
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with join_process_group(TrainingConfig()) as context:
        assert (context, context.all_reduce_sum(2, 0.5), context.all_reduce_max(3), context.broadcast("x")) == (
            DistributedContext(),
            [2.0, 0.5],
            3,
            "x",
        )


def test_shares_cover_every_micro_batch_once() -> None:
    """Catches micro-batches that are lost or distributed in another order than the dropout's seeds."""
    for n, size in ((1, 2), (3, 2), (7, 3), (4, 4)):
        contexts = [DistributedContext(rank, size) for rank in range(size)]
        shares = [context.items_of_rank(range(n)) for context in contexts]
        assert sorted(index for share in shares for index in share) == list(range(n))
        assert all(
            index == rank + position * size for rank, share in enumerate(shares) for position, index in enumerate(share)
        )
        assert all(contexts[0].max_items_per_rank(n) - len(share) in (0, 1) for share in shares)
