"""Memory of processes."""

from collections.abc import Iterable
from pathlib import Path


def memory_of(pids: Iterable[int]) -> int:
    """Returns the memory of processes in bytes; shared pages are divided among the processes (PSS)."""
    return sum(map(_memory_of_process, pids))


def _memory_of_process(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    except (OSError, ValueError, StopIteration):  # the process has ended
        return 0
