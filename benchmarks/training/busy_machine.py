"""Training speed beside other processes that compute: the share of the speed alone that is left.

The threads of a matrix product wait for one another. While they wait they spin, which is fastest on an idle machine;
but a thread that spins holds a core that the one it waits for may need. And a thread that wakes may be put on the core
of the other one, so that both share it. `GOMP_SPINCOUNT` is the number of rounds after which a waiting thread of GNU
OpenMP, which PyTorch uses, goes to sleep, and `OMP_PROC_BIND=true` keeps each thread on a core of its own. Each setting
is timed alone and beside 1, 2 and 4 processes that count, in turn, on `tiny` of `throughput.py` in bf16.

Usage: python benchmarks/training/busy_machine.py [--busy 0,1,2,4] [--rounds 3] [--engines ours-bf16] [--out FILE]
       [--settings default GOMP_SPINCOUNT=1000 OMP_PROC_BIND=true GOMP_SPINCOUNT=1000,OMP_PROC_BIND=true]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs import SHAPES, Runner, make_job, multi30k, named
from report import spread, write_result

VARIABLES = ("GOMP_SPINCOUNT", "OMP_PROC_BIND", "OMP_WAIT_POLICY")
DEFAULT = "default"
SETTINGS = (DEFAULT, "GOMP_SPINCOUNT=1000", "OMP_PROC_BIND=true", "GOMP_SPINCOUNT=1000,OMP_PROC_BIND=true")
SHAPE = replace(SHAPES["tiny"], steps=60)


@contextmanager
def busy_processes(n: int) -> Generator[None]:
    """Runs n processes that count."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def environment(setting: str) -> Generator[None]:
    """Sets variables, as in "A=1,B=2" or "default" for none, for processes that are started meanwhile."""
    before = {name: os.environ.pop(name, None) for name in VARIABLES}
    os.environ.update(part.split("=", 1) for part in setting.split(",") if setting != DEFAULT)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def main() -> None:
    """Measures all settings and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=SETTINGS, help="variables, with commas")
    parser.add_argument("--busy", default="0,1,2,4", help="numbers of busy processes, with commas")
    parser.add_argument("--engines", default="ours-bf16", help="names as in throughput.py, with commas")
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="the folder that setup.sh made")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    settings = [
        (engine, setting, int(busy))
        for engine in arguments.engines.split(",")
        for setting in arguments.settings
        for busy in arguments.busy.split(",")
    ]
    batches, vocabulary = multi30k(10_000, SHAPE.warm_steps + SHAPE.steps)
    rates: dict[tuple[str, str, int], list[float]] = {key: [] for key in settings}
    with tempfile.TemporaryDirectory() as folder:
        job = make_job(SHAPE, batches, vocabulary, Path(folder)) | {"threads": 2, "device": "cpu"}
        python = {"transformers": str(arguments.peers / "transformers/bin/python")}
        runner = Runner(job, Path(folder), python)
        for number in range(arguments.rounds):
            for key in settings:
                engine, setting, busy = key
                with environment(setting), busy_processes(busy):
                    (timing,) = runner.timed([named(engine)], number + 1)
                if "error" in timing:
                    raise SystemExit(f"{engine}: {timing['error']}")
                rates[key].append(timing["target_tokens_per_second"])
                print(f"round {number + 1}: {engine}, {setting}, {busy} busy: {rates[key][-1]:,.0f}", flush=True)
    figures: list[dict[str, Any]] = []
    for (engine, setting, busy), values in rates.items():
        alone = rates.get((engine, setting, 0))
        share = statistics.median(values) / statistics.median(alone) if alone else None
        figures.append({
            "engine": engine, "setting": setting, "busy": busy, "target_tokens_per_second": spread(values),
            "share_of_alone": share,
        })  # fmt: skip
        print(json.dumps(figures[-1]))
    write_result(arguments.out, threads=2, figures=figures)


if __name__ == "__main__":
    main()
