"""Work in shards by a function that copies: rates of dividing and joining, two processes on two cores, and memory.

Goals: results are joined at half the rate of `cat` and `sync` or more, two processes do twice the work of one at 0.9 of
the ideal rate or more, and the memory of a process does not grow with the input. Each round does all cases, one after
another, with files that were just written. A rate counts on a machine that does nothing else; the seconds of a
processor, of all threads and of the kernel, depend less on what else runs.

Usage: python benchmarks/data/shards.py [--megabytes 1024] [--shards 64] [--rounds 3] [--folder FOLDER] [--out FILE]
"""

import argparse
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformer.sharding.environment import Place
from transformer.sharding.job import Job, ShardOutput
from transformer.sharding.lines import TextFiles
from transformer.sharding.shards import Shard

LIMIT = 1 << 20
PIECE = b"".join(b"%d A man in a blue shirt is standing on a ladder.\n" % number for number in range(20_000))
WORK_PER_LINE = 40
"""Number of times that a line is copied, so that a process has more to do than to read and write."""


def copy(files: TextFiles) -> Callable[[Shard, ShardOutput], None]:
    """Returns the work of a model that copies."""

    def work(shard: Shard, output: ShardOutput) -> None:
        for (line,) in files.read(shard, LIMIT):
            copied = line
            for _ in range(WORK_PER_LINE):
                copied = bytes(bytearray(line))
            output.write(copied)

    return work


def make_job(folder: Path, path: Path, n_shards: int) -> tuple[Job, TextFiles]:
    """Returns a job, which is not planned yet, and its input."""
    files = TextFiles([path])
    return Job(folder, files, {"model": "copies"}, n_shards), files


def work_on(folder: Path, path: Path, n_shards: int) -> None:
    """Does shards until all are there, and prints the peak memory of this process in MiB."""
    job, files = make_job(folder, path, n_shards)
    job.plan()
    job.run(copy(files), Place(), lambda n_lines: None)
    job.close()
    status = Path("/proc/self/status").read_text(encoding="ascii")  # `ru_maxrss` counts that of the parent too
    print(int(status.partition("VmHWM:")[2].split()[0]) // 1024)


def seconds(act: Callable[[], object]) -> float:
    """Returns the seconds that a call takes."""
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def processor_seconds(act: Callable[[], object]) -> float:
    """Returns the seconds of processors that a call takes, in this process and in those that it starts."""
    started = os.times()
    act()
    return sum(end - start for start, end in zip(started[:4], os.times()[:4], strict=True))


def run_workers(n_workers: int, folder: Path, path: Path, n_shards: int) -> tuple[float, int]:
    """Returns the seconds of some processes that share the shards, and the largest peak of their memory in MiB."""
    command = [sys.executable, __file__, "--work", str(folder), str(path), "--shards", str(n_shards)]
    started = time.perf_counter()
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(n_workers)]
    printed = [worker.communicate()[0] for worker in workers]
    if any(worker.returncode for worker in workers):
        raise SystemExit("a process failed")
    return time.perf_counter() - started, max(map(int, printed))


def measure(folder: Path, megabytes: int, n_shards: int) -> dict[str, float]:
    """Returns the figures of one round."""
    path, small, results = folder / "text", folder / "small", folder / "results"
    with path.open("wb") as file:
        for _ in range(megabytes * 1_000_000 // len(PIECE)):
            file.write(PIECE)
    small.write_bytes(PIECE)
    n_bytes = path.stat().st_size
    job, _ = make_job(folder / "divided", path, n_shards)
    divide = seconds(job.plan)
    job.close()
    one, peak = run_workers(1, folder / "one", path, n_shards)
    two, _ = run_workers(2, results, path, n_shards)
    _, small_peak = run_workers(1, folder / "few", small, n_shards)
    job, _ = make_job(results, path, n_shards)
    job.plan()
    parts = [job.part(shard.index) for shard in job.shards]
    busy: list[float] = []
    join = seconds(lambda: busy.append(processor_seconds(lambda: job.join(folder / "joined"))))
    job.close()
    command = ["sh", "-c", 'cat "$@" > "$0" && sync "$0"', folder / "cat", *parts]
    cat = seconds(lambda: busy.append(processor_seconds(lambda: subprocess.run(command, check=True))))
    if not filecmp.cmp(folder / "joined", folder / "cat", shallow=False):
        raise SystemExit("the joined file is wrong")
    return {
        "divide_mb_per_second": n_bytes / 1e6 / divide, "join_mb_per_second": n_bytes / 1e6 / join,
        "join_of_cat": cat / join, "join_processor_seconds_a_gb": busy[0] / n_bytes * 1e9,
        "cat_processor_seconds_a_gb": busy[1] / n_bytes * 1e9, "two_of_ideal": one / 2 / two,
        "peak_mib": peak, "peak_of_small_input_mib": small_peak,
    }  # fmt: skip


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="folder for the files; temporary if not given")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work_on(options.work[0], options.work[1], options.shards)
        return
    import torch  # not in the processes whose memory and time are measured

    sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
    from report import command_line, hardware, spread

    rounds: list[dict[str, float]] = []
    for _ in range(options.rounds):
        folder = Path(tempfile.mkdtemp(dir=options.folder))
        try:
            rounds.append(measure(folder, options.megabytes, options.shards))
        finally:
            shutil.rmtree(folder)
        print(json.dumps(rounds[-1]))
    result: dict[str, Any] = {
        "command": command_line(), "hardware": hardware(torch.device("cpu")), "cores": os.cpu_count(),
        "figures": {name: spread([figures[name] for figures in rounds]) for name in rounds[0]}, "rounds": rounds,
    }  # fmt: skip
    print(json.dumps(result["figures"], indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
