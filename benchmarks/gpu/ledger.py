"""Results of `make gpu-1` to `gpu-4`: written one by one, skipped where they exist, begun only while there is time."""

import argparse
import gc
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / "benchmarks" / "training"))
from report import hardware, spread  # noqa: E402

PEAKS = {
    "H100 PCIe": 756e12, "H100": 989.4e12, "H200": 989.4e12, "A100": 312e12, "L4": 121e12,
}  # fmt: skip
"""Dense bfloat16 operations a second by a part of the GPU's name, the more specific first; NVIDIA's data sheets."""
IN_SMALL = "no GPU: everything runs in small on the CPU; the figures say nothing about speed"


@dataclass(frozen=True)
class Arguments:
    """Command line of a script.

    Attributes:
        device: Device that is measured.
        in_small: Whether sizes are tiny, so that a CPU takes seconds.
        out: Folder of the results.
        minutes: Time after which no further measurement begins.
        again: Whether to repeat measurements that exist.
    """

    device: torch.device
    in_small: bool
    out: Path
    minutes: float
    again: bool


def read_arguments(description: str | None) -> Arguments:
    """Reads the command line; the default folder is that of the hardware, or `build` where there is no GPU."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--out", type=Path, help="folder of results; default: that of the hardware")
    parser.add_argument("--minutes", type=float, default=7.0, help="no measurement begins that would end later")
    parser.add_argument("--again", action="store_true", help="measure again what is there")
    options = parser.parse_args()
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    is_gpu = kind == "cuda"
    if is_gpu and not torch.cuda.is_available():
        raise SystemExit("device=cuda, but torch sees no GPU; leave out --device to run in small on the CPU")
    if not is_gpu:
        os.environ["OMP_NUM_THREADS"] = "1"  # threads would wait for each other longer than they compute
        torch.set_num_threads(1)
    default = ROOT / "benchmarks" / "results" / folder_name() if is_gpu else ROOT / "build" / "gpu-in-small"
    return Arguments(torch.device(kind), not is_gpu, options.out or default, options.minutes, options.again)


def folder_name() -> str:
    """Returns the name of the results' folder, e.g. nvidia-h100 for NVIDIA H100 80GB HBM3."""
    words = re.findall(r"[a-z0-9]+", torch.cuda.get_device_name().lower())
    return "-".join(words[:2])


def peak_rate(name: str) -> float | None:
    """Returns the dense bfloat16 operations a second of a GPU, or None if its name is not in the table."""
    return next((rate for part, rate in PEAKS.items() if part in name), None)


class Ledger:
    """A JSON file of measurements, which is written after each of them.

    Args:
        script: Name of the file.
        arguments: Command line.
    """

    def __init__(self, script: str, arguments: Arguments) -> None:
        self.path = arguments.out / f"{script}.json"
        self._limit, self._again = 60 * arguments.minutes, arguments.again
        self._begun = time.monotonic()
        self._n_measured = 0
        self.left: list[str] = []
        content = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.measurements: dict[str, dict[str, Any]] = content.get("measurements", {})
        self._facts = {"in_small": IN_SMALL} if arguments.in_small else {}
        self._facts |= {"hardware": hardware(arguments.device), "versions": versions()}
        if arguments.in_small:
            print(IN_SMALL, flush=True)

    def measure(self, name: str, seconds: float, run: Callable[[], dict[str, Any]], line: str = "") -> None:
        """Runs a measurement unless it is there or would take too long; an error is written instead of its figures.

        Args:
            name: Name of the measurement.
            seconds: Time that it is expected to take on a GPU.
            run: Function that returns the figures.
            line: Format of the one-line summary, with the names of figures.
        """
        recorded = self.measurements.get(name, {})
        if recorded and "error" not in recorded and not self._again:
            print(f"{name}: there already, of commit {recorded['commit']}", flush=True)
            return
        elapsed = time.monotonic() - self._begun
        if self._n_measured and elapsed + seconds > self._limit:
            self.left.append(name)
            return
        print(f"{name} ... (about {seconds:.0f} s; {elapsed:.0f} s so far)", flush=True)
        begun = time.monotonic()
        try:
            figures = run()
        except (Exception, SystemExit) as error:  # the others are measured nevertheless
            figures = {"error": f"{type(error).__name__}: {error}"[:2000]}
        release_memory()
        self._n_measured += 1
        took = {"commit": commit(), "took_seconds": round(time.monotonic() - begun, 1)}
        self.measurements[name] = figures | took
        self._write()
        summary = figures["error"].splitlines()[0] if "error" in figures else _format(line, figures)
        print(f"{name}: {summary}", flush=True)

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".writing")
        beside.write_text(json.dumps(self._facts | {"measurements": self.measurements}, indent=2) + "\n")
        beside.replace(self.path)

    def finish(self) -> None:
        """Prints where the results are and what is left; the exit code is 1 if a measurement failed."""
        print(f"results: {self.path}")
        if self.left:
            print(f"the time is up; the same command measures what is left: {', '.join(self.left)}")
        failed = [name for name, figures in self.measurements.items() if "error" in figures]
        raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)


def _format(line: str, figures: dict[str, Any]) -> str:
    """Fills in the summary; a figure that is missing is shown as a dash."""
    shown = {key: value["median"] if isinstance(value, dict) and "median" in value else value
             for key, value in figures.items()}  # fmt: skip

    def fill(field: re.Match[str]) -> str:
        value = shown.get(field["name"])
        return "-" if value is None else format(value, field["spec"])

    return re.sub(r"\{(?P<name>\w+)(?::(?P<spec>[^}]*))?\}", lambda m: fill(m) if m["spec"] else _plain(shown, m), line)


def _plain(shown: dict[str, Any], field: re.Match[str]) -> str:
    return str(shown.get(field["name"], "-"))


def wait(device: torch.device) -> None:
    """Waits until a GPU has done what was queued."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds_of(run: Callable[[], object], device: torch.device) -> float:
    """Returns the seconds of a call, including what it queued."""
    wait(device)
    begun = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - begun


def in_turn(
    runs: dict[str, Callable[[], object]], device: torch.device, repeats: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """Returns the seconds of each function's calls, which take turns so that other load affects all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(-warm_up, repeats):
        for name, run in runs.items():
            taken = seconds_of(run, device)
            if number >= 0:
                seconds[name].append(taken)
    return seconds


def ratios(seconds: dict[str, list[float]], ours: str, theirs: str) -> dict[str, float] | None:
    """Returns how many times as fast the first of two functions is, turn by turn; None if one was not run."""
    if not (seconds.get(ours) and seconds.get(theirs)):
        return None
    return spread([their / our for our, their in zip(seconds[ours], seconds[theirs], strict=True)])


def peak_mib(device: torch.device) -> float | None:
    """Returns the highest memory of tensors since the last reset, on a GPU."""
    return torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else None


def release_memory() -> None:
    """Frees the memory of models that are no longer used, and begins a new highest memory."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def has_package(name: str) -> bool:
    """Whether a package is installed."""
    return name in versions()


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that matter."""
    installed = {"python": platform.python_version()}
    for name in ("torch", "triton", "transformers"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def commit() -> str:
    """Returns the commit of the checkout; `unknown` without git."""
    try:
        call = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
