"""`transformer preflight` on two ranks, of which one has a broken setting."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

WAIT_SECONDS = "600"
"""Time within which ranks answer, so that a busy machine makes no trouble."""


def start_ranks(folders: list[Path], *options: str, **of_last: str) -> list["subprocess.CompletedProcess[str]"]:
    """Runs a rank in each folder, the last with further variables, and returns their ends."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "transformer", "preflight", "--device", "cpu", "--seconds", WAIT_SECONDS, *options]
    ranks = []
    for rank, folder in enumerate(folders):
        variables = {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(folders)), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        environment = {**os.environ, **variables, **(of_last if rank == len(folders) - 1 else {})}
        pipe = subprocess.PIPE
        ranks.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True))
    ends = [(rank, *rank.communicate(timeout=800)) for rank in ranks]
    return [subprocess.CompletedProcess(command, rank.returncode, out, err) for rank, out, err in ends]


def test_healthy_ranks_pass(tmp_path: Path) -> None:
    """Catches trouble where there is none, weights that differ after a step, and files that remain."""
    ends = start_ranks([tmp_path, tmp_path], "--folder", "runs", "--json")
    assert [end.returncode for end in ends] == [0, 0], ends
    facts = json.loads(ends[0].stdout)
    assert facts["troubles"] == []
    for row in facts["ranks"]:
        assert row["host"] == socket.gethostname()
        assert row["all-reduce"].endswith(" GB/s")
        assert row["step"].endswith(" ms")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_rank_with_other_kernels_and_a_folder_of_its_own_is_named(tmp_path: Path) -> None:
    """Catches ranks that differ and start nevertheless, and a line that does not say which rank and why."""
    for name in ("a", "b"):
        (tmp_path / name / "runs").mkdir(parents=True)
    ends = start_ranks([tmp_path / "a", tmp_path / "b"], "--folder", "runs", TRANSFORMER_KERNELS="off")
    assert [end.returncode for end in ends] == [2, 2], ends
    assert ends[1].stdout == ""
    versions, *table = ends[0].stdout.splitlines()
    assert versions.startswith("Python 3.")
    assert len(table) == 3
    (line,) = [line for line in ends[0].stderr.splitlines() if line.startswith("error: ")]
    name = f"rank 1 ({socket.gethostname()})"
    assert f"{name} has kernels torch's, but rank 0 has " in line
    assert f"{name} does not see in runs what rank 0 wrote there" in line
    assert "rank 0 (" not in line
