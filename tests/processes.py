"""Processes of the system."""

from pathlib import Path


def child_processes(parent: int | str = "self") -> list[int]:
    """Returns the ids of the children of a process, by default this one, whichever thread forked them."""
    return [int(pid) for file in Path(f"/proc/{parent}/task").glob("*/children") for pid in file.read_text().split()]
