"""Commands in a shell, with their time and the peak memory of all their processes."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

SAMPLE_SECONDS: Final = 0.05


def descendants(process: int) -> list[int]:
    """Returns a process and all that it started."""
    processes = [process]
    for parent in processes:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                processes.extend(map(int, task.read_text().split()))
            except OSError:  # the task ended
                continue
    return processes


def memory_kib(process: int) -> int:
    """Returns the resident memory of a process in KiB; what n processes share counts one nth."""
    try:
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:  # the process ended
        return 0
    proportional = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    return int(proportional[1]) if proportional else 0


class PeakMemory:
    """The most memory that a tree of processes has had, looked at from a thread of its own."""

    def __init__(self, process: int) -> None:
        self.mib = 0.0
        self._process = process
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.is_set():
            self.mib = max(self.mib, sum(map(memory_kib, descendants(self._process))) / 1024)
            self._ended.wait(SAMPLE_SECONDS)

    def close(self) -> None:
        """Ends the thread."""
        self._ended.set()
        self._thread.join()


def run_command(
    command: str, folder: Path, environment: Mapping[str, str], log: Path, *, timeout: float, sign: str | None = None
) -> dict[str, Any]:
    """Runs one command to its end and returns its seconds and peak memory.

    Args:
        command: Command as a user types it.
        folder: Folder in which it runs.
        environment: Environment variables, all of them.
        log: File to which the output is appended.
        timeout: Seconds after which the command and all that it started are killed.
        sign: Pattern in the output at which seconds and peak memory are noted as well.
    """
    started = time.perf_counter()
    shell = subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", command], cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    memory = PeakMemory(shell.pid)
    expired = threading.Event()

    def kill() -> None:
        expired.set()
        os.killpg(shell.pid, signal.SIGKILL)

    timer = threading.Timer(timeout, kill)
    timer.start()
    figures: dict[str, Any] = {}
    output = b""
    assert shell.stdout is not None
    with log.open("ab") as file:
        file.write(f"$ {command}\n".encode())
        while chunk := os.read(shell.stdout.fileno(), 2**16):
            output += chunk
            file.write(chunk)
            if sign and "seconds_to_sign" not in figures and re.search(sign.encode(), output, re.MULTILINE):
                figures |= {"seconds_to_sign": time.perf_counter() - started, "peak_mib_to_sign": memory.mib}
    shell.wait()
    figures["seconds"] = time.perf_counter() - started
    timer.cancel()
    memory.close()
    figures["peak_mib"] = memory.mib
    lines = [line.strip() for line in re.split(r"[\r\n]+", output.decode(errors="replace")) if line.strip()]
    if expired.is_set():
        figures["error"] = f"not ended after {timeout:g} s"
    elif shell.returncode:
        figures["error"] = lines[-1] if lines else f"exit status {shell.returncode}"
    return figures | {"printed": lines[-8:]}


def run_stage(
    commands: list[str], folder: Path, environment: Mapping[str, str], log: Path, *, timeout: float,
    sign: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Runs the commands of a stage one after another, until one fails; returns the sum of seconds and the peak.

    The sign is looked for in the output of the last command; its seconds count from the start of the first.
    """
    stage: dict[str, Any] = {"commands": commands, "seconds": 0.0, "peak_mib": 0.0}
    for command in commands:
        is_last = command is commands[-1]
        figures = run_command(command, folder, environment, log, timeout=timeout, sign=sign if is_last else None)
        if "seconds_to_sign" in figures:
            stage["seconds_to_sign"] = stage["seconds"] + figures["seconds_to_sign"]
            stage["peak_mib_to_sign"] = max(stage["peak_mib"], figures["peak_mib_to_sign"])
        stage["seconds"] += figures["seconds"]
        stage["peak_mib"] = max(stage["peak_mib"], figures["peak_mib"])
        stage["printed"] = figures["printed"]
        if "error" in figures:
            return stage | {"seconds": None, "error": figures["error"], "failed_command": command}
    if sign and "seconds_to_sign" not in stage:
        return stage | {"seconds": None, "error": f"no line like {sign!r} in the output"}
    return stage
