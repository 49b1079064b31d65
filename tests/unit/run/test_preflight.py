"""Checks of ranks, which are threads here: messages, the shared folder, and what the table says."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import HashStore

from transformer.run.preflight import checks, exchange
from transformer.run.preflight.checks import check_folder, local_facts
from transformer.run.preflight.exchange import Exchange
from transformer.run.preflight.report import Answers, format_rows, summary
from transformer.training.backend import Backend


def of_ranks(function: Callable[[Exchange], Any], size: int = 3, seconds: float = 60.0) -> list[Any]:
    """Returns the results of a function on ranks that share a store."""
    store = HashStore()
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: function(Exchange(store, rank, size, seconds)), range(size)))


def test_ranks_exchange_values() -> None:
    """Catches values that are lost or that belong to another rank."""

    def talk(ranks: Exchange) -> tuple[dict[int, Any], Any]:
        return ranks.gather("squares", ranks.rank**2), ranks.broadcast("name", f"of rank {ranks.rank}")

    assert of_ranks(talk) == [({0: 0, 1: 1, 2: 4}, "of rank 0"), ({}, "of rank 0"), ({}, "of rank 0")]


def test_a_rank_that_does_not_answer_is_missed_once() -> None:
    """Catches a check that waits for ever, or that waits for the same rank again in every step."""
    ranks = Exchange(HashStore(), 0, 2, 0.01)
    assert ranks.gather("first", "here") == {0: "here"}
    assert ranks.present == {0}
    ranks.seconds = 1e6
    assert ranks.gather("second", "here") == {0: "here"}


def test_clocks_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a wrong sign, and an offset in which the time of the message is counted."""
    import threading
    import time

    clock, ahead = time.time, {}
    monkeypatch.setattr(exchange.time, "time", lambda: clock() + ahead.get(threading.get_ident(), 0.0))

    def compare(ranks: Exchange) -> tuple[float, float]:
        ahead[threading.get_ident()] = {0: 0.0, 1: 500.0, 2: -300.0}[ranks.rank]
        return ranks.clock_offset()

    for (offset, error), expected in zip(of_ranks(compare), (0, 500, -300), strict=True):
        assert abs(offset - expected) <= error + 1e-3


def test_a_shared_folder_is_shared(tmp_path: Path) -> None:
    """Catches trouble where there is none, a lock that several ranks hold, and files that remain."""
    results = of_ranks(lambda ranks: check_folder(ranks, tmp_path / "runs"))
    assert [result["trouble"] for result in results] == ["", "", ""]
    assert sum(result["locked"] for result in results) == 1
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_folder_that_one_rank_does_not_share_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a rank with a folder of its own, which would train or translate apart from the others."""
    monkeypatch.setattr(checks, "VISIBLE_SECONDS", 0.0)
    (tmp_path / "other").mkdir()
    results = of_ranks(lambda ranks: check_folder(ranks, tmp_path / ("other" if ranks.rank == 1 else "runs")), size=2)
    assert [result["trouble"] for result in results] == [
        "",
        f"does not see in {tmp_path / 'other'} what rank 0 wrote there; name a folder that all machines share by "
        "--folder",
    ]
    assert [*(tmp_path / "other").iterdir(), *(tmp_path / "runs").iterdir()] == []


def test_a_folder_in_which_nobody_can_write_is_named(tmp_path: Path) -> None:
    """Catches a traceback of rank 0 that leaves the others waiting."""
    (tmp_path / "file").write_text("")
    results = of_ranks(lambda ranks: check_folder(ranks, tmp_path / "file"), size=2)
    assert results[0]["trouble"].startswith(f"cannot write in {tmp_path / 'file'}: ")
    assert results[1]["trouble"] == "could not check the folder, because rank 0 cannot write there"


def answers(size: int = 3, **changes: Any) -> Answers:
    """Returns answers of healthy ranks; `changes` maps a field to changes by rank, where None removes the answer."""
    versions = {"torch": "2.13.0", "kernels": "avx2"}
    healthy: dict[str, Any] = {
        "local": {"host": "a", "device": "CPU", "versions": versions, "trouble": ""},
        "clocks": (0.0, 0.001),
        "folder": {"trouble": "", "seconds": 0.1, "locked": False},
        "communication": {"trouble": "", "gigabytes_per_second": 1.5, "step_seconds": 0.02, "weights": "1.0"},
    }
    fields: dict[str, Any] = {}
    for field, value in healthy.items():
        changed = changes.get(field, {})
        merged = {
            rank: {**value, **changed.get(rank, {})} if isinstance(value, dict) else changed.get(rank, value)
            for rank in range(size)
            if changed.get(rank, value) is not None
        }
        fields[field] = merged
    return Answers(size, 20.0, **fields)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        (
            {field: {2: None} for field in ("local", "clocks", "folder", "communication")},
            ["rank 2 did not answer within 20 s; see its log, and whether it was started"],
        ),
        (
            {"local": {1: {"host": "b", "versions": {"torch": "2.12.0", "kernels": "avx2"}}}},
            ["rank 1 (b) has torch 2.12.0, but 2 ranks have 2.13.0; install the same on all machines"],
        ),
        ({"clocks": {1: (2.5, 0.01)}}, ["rank 1 (a) has a clock 2.5 s ahead of that of rank 0; synchronize it (NTP)"]),
        ({"clocks": {1: (-2.5, 2.0)}}, []),  # as likely the message that took long
        ({"local": {2: {"trouble": "has no GPU"}}}, ["rank 2 (a) has no GPU"]),
        ({"folder": {0: {"locked": True}}}, []),
        (
            {"folder": {0: {"locked": True}, 2: {"locked": True}}},
            ["rank 0 (a) and rank 2 (a) hold the same lock; use a file system with exclusive creation (O_EXCL)"],
        ),
        ({"communication": {1: {"trouble": "cannot reach the other ranks: x"}}},
         ["rank 1 (a) cannot reach the other ranks: x"]),
        ({"communication": {1: {"weights": "1.1"}}},
         ["rank 1 (a) has other weights than rank 0 after the same training step; compare their hardware"]),
    ],
)  # fmt: skip
def test_trouble_names_rank_and_reason(changes: dict[str, Any], expected: list[str]) -> None:
    """Catches trouble that nobody hears of, and a healthy rank that is blamed."""
    assert answers(**changes).troubles() == expected


def test_two_ranks_that_differ_are_compared_with_rank_0() -> None:
    """Catches that rank 0 is blamed where nobody can know who is right."""
    changed = answers(2, local={1: {"versions": {"torch": "2.13.0", "kernels": "none"}}})
    assert changed.troubles() == [
        "rank 1 (a) has kernels none, but rank 0 has avx2; install the same on all machines"
    ]  # fmt: skip


def test_the_table_has_a_row_for_each_rank() -> None:
    """Catches a rank that is left out because it did not answer."""
    missing = {field: {1: None} for field in ("local", "clocks", "folder", "communication")}
    heading, first, second = format_rows(answers(2, **missing).rows())
    assert heading.split() == ["rank", "host", "device", "clock", "folder", "all-reduce", "step"]
    assert first.split("  ")[0] == "0"
    assert "1.50 GB/s" in first
    assert second.split() == ["1", "no", "answer", *"-----"]


def test_the_table_fits_a_terminal() -> None:
    """Catches rows that wrap at 80 columns, with slow ranks on GPUs with long names."""
    slow = {"step_seconds": 12.0, "gigabytes_per_second": 100.0}
    local = {"host": "gpu-node-012", "device": "NVIDIA H100 80GB HBM3"}
    changed = answers(2, local={0: local, 1: local}, clocks={1: (-0.1234, 0.0005)}, communication={1: slow})
    assert max(map(len, format_rows(changed.rows()))) <= 80


def test_versions_are_those_of_most_ranks() -> None:
    """Catches the versions of rank 0 alone above a table in which it is the one that differs."""
    changed = answers(3, local={0: {"versions": {"torch": "2.12.0", "kernels": "avx2"}}})
    assert changed.versions() == {"torch": "2.13.0", "kernels": "avx2"}
    assert answers(0).versions() == {}


def test_a_summary_is_one_line() -> None:
    """Catches a line that grows with the number of ranks."""
    assert summary(["a", "b"]) == "a; and b"
    assert summary(["a", "b", "c", "d", "e"]) == "a; and b; and c; and 2 more, see --json"


def test_a_rank_without_its_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches more ranks than GPUs, of which one would fail later in the middle of the others."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "GPU")
    monkeypatch.setattr(checks, "choose_backend", lambda *_: Backend(torch.device("cuda"), "float32"))
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert (local_facts("auto")["trouble"], local_facts("auto")["device"]) == ("", "GPU")
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert "has no GPU for its number 2 on this machine, which has 2" in local_facts("auto")["trouble"]
