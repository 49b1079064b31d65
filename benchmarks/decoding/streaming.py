"""Memory of `transformer translate` by the length of the file: peak anonymous memory of all its processes.

The longer files repeat the lines of the shortest one, so that they differ in length alone. Each is translated by the
real command, whose processes are sampled up to fifty times a second (Pss_Anon, which counts shared memory once). A long
run has more samples, and the maximum of more samples is larger. For a fair comparison the shortest file is translated
several times, and for each run three figures are reported: the maximum, the maximum of each tenth, and the median of
the maxima of stretches with as many samples as the shortest file had. The latter two begin when all processes have
started.

Usage: python benchmarks/decoding/streaming.py --model BUNDLE --text FILE [--lines 5000,500000,5000000] [--out FILE]
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import torch

sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
from report import command_line, hardware
from throughput import read


def processes(root: int) -> list[int]:
    """Returns the ids of a process and of all its descendants."""
    pids = [root]
    for process in pids:
        with suppress(OSError):
            for thread in Path(f"/proc/{process}/task").iterdir():
                pids += map(int, (thread / "children").read_text().split())
    return pids


def anonymous_mib(root: int) -> tuple[int, float] | None:
    """Returns the number of processes and their anonymous memory in MiB; None if a process ended during the sampling.

    The shared memory of a process that ended counts for the others, some of which have been sampled before.
    """
    kib = 0
    sampled_pids = processes(root)
    for process in sampled_pids:
        process_kib = _pss_anon(process)
        if process_kib is None:
            return None
        kib += process_kib
    is_whole = processes(root) == sampled_pids and all(_pss_anon(process) is not None for process in sampled_pids)
    return (len(sampled_pids), kib / 1024) if is_whole else None


def _pss_anon(process: int) -> int | None:
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1])
    return None


def parts(samples: list[float], n: int) -> list[list[float]]:
    """Splits samples into n stretches of nearly equal length, in order."""
    n = max(1, min(n, len(samples)))
    return [samples[len(samples) * i // n : len(samples) * (i + 1) // n] for i in range(n)]


def translated(model: Path, text: Sequence[str], n: int) -> tuple[list[tuple[int, float]], float, int]:
    """Translates so many lines, a text over and over: each look at processes and MiB, seconds, lines written."""
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "source", Path(name) / "target"
        with source.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in islice(cycle(text), n))
        command = [sys.executable, "-m", "transformer", "translate", model]
        started, samples = time.perf_counter(), list[tuple[int, float]]()
        with subprocess.Popen([*command, "--input", source, "--output", target], stderr=subprocess.DEVNULL) as process:
            while process.poll() is None:
                if (held := anonymous_mib(process.pid)) is not None:
                    samples.append(held)
                time.sleep(0.02)
        if process.returncode:
            raise SystemExit(f"translating {n} lines failed; try: {' '.join(map(str, command))}")
        with target.open("rb") as file:
            return samples, time.perf_counter() - started, sum(1 for _ in file)


def main() -> None:
    """Translates each file and prints its peak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--lines", default="5000,500000,5000000", help="of each file")
    parser.add_argument("--rounds", type=int, default=10, help="of the shortest file")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    try:
        short, *others = sorted(int(n) for n in arguments.lines.split(","))
    except ValueError:
        parser.error(f"--lines {arguments.lines}: numbers with commas between them")
    text = read(arguments.text)[:short]
    if not any(text) or min(short, arguments.rounds) < 1:
        parser.error("a text with lines, at least one line of it, and one round, are needed")
    figures, stretch = list[dict[str, object]](), 0
    for n in [short] * arguments.rounds + others:
        samples, seconds, written = translated(arguments.model, text, n)
        most = max(processes for processes, _ in samples)
        at_work = [held for processes, held in samples if processes == most]
        stretch = stretch or len(at_work)
        figures.append({
            "lines": n, "peak_anonymous_mib": max(held for _, held in samples), "seconds": seconds,
            "lines_written": written, "processes": most, "looks_at_all": len(at_work),
            "most_of_each_tenth": [max(part) for part in parts(at_work, 10)],
            "median_of_the_most_of_stretches": median(max(part) for part in parts(at_work, len(at_work) // stretch)),
        })  # fmt: skip
        print(figures[-1], flush=True)
    result = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")),
        "versions": {"python": platform.python_version(), "torch": torch.__version__}, "runs": figures,
    }  # fmt: skip
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
