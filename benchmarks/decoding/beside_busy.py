"""Translation beside other processes that compute: the share of the speed alone that is left, here and in CTranslate2.

Three kinds are timed, each alone and beside 1, 2 and 4 processes that count: a file that is translated at once, lines
that are translated by a call each, and requests of 32 clients to a server. The file and the server have two workers
with a thread each, the calls one worker with two threads. CTranslate2 is timed in the same rounds. The small model is
that of `small_model.py`.

Usage: sh benchmarks/serving/engines/setup.sh .peers
       python benchmarks/decoding/beside_busy.py --file SOURCE [--model build/small-model] [--busy 0,1,2,4] [--rounds 3]
           [--out FILE]
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
sys.path.insert(1, str(Path(__file__).parents[1] / "serving"))
from busy_machine import busy_processes
from report import spread, write_result
from servers import SERVERS, WORKERS, Servers, body, load
from small_model import fetch_small_model
from text_files import Run, Runner
from throughput import read

CLIENTS: Final = 32
BATCHES: Final = {"ours": "its own", "ctranslate2": "64 lines"}
SERVED: Final = {"ours": SERVERS[0], "ctranslate2": next(s for s in SERVERS if s.name == "CTranslate2 batching, 2 x 1")}


def measurements(arguments: argparse.Namespace, folder: Path) -> dict[tuple[str, str], Callable[[], float]]:
    """Returns what measures a kind with a toolkit, in lines or requests a second."""
    runner = Runner(folder, arguments.peers, arguments.model)
    served = folder / "served"
    served.mkdir()
    (served / "weights.safetensors").symlink_to(folder / "weights.safetensors")
    servers = Servers(served, arguments.model, arguments.peers, runner.sizes)
    part, calls = (runner.first_lines(arguments.file, number) for number in (arguments.lines, arguments.calls))
    bodies = folder / "bodies"
    bodies.write_bytes(b"".join(body(line) + b"\n" for line in read(part)))

    def lines(source: Path, run: Run, *, each: bool) -> float:
        seconds, written = runner(run, runner.case(source, 1, each=each))
        return len(written) / seconds

    def requests(toolkit: str) -> float:
        with servers.running(SERVED[toolkit]) as (address, _):
            load(address, bodies, WORKERS, min(2.0, arguments.seconds))  # warm up
            return load(address, bodies, CLIENTS, arguments.seconds)["requests_per_second"]

    kinds: dict[str, Callable[[str], float]] = {
        "file": lambda toolkit: lines(part, Run(f"{toolkit}-int8", 2, 1, BATCHES[toolkit]), each=False),
        "calls": lambda toolkit: lines(calls, Run(f"{toolkit}-int8", 1, 2, BATCHES[toolkit]), each=True),
        "server": requests,
    }
    return {
        (kind, toolkit): lambda measure=measure, toolkit=toolkit: measure(toolkit)
        for kind, measure in kinds.items()
        if kind in arguments.kinds.split(",")
        for toolkit in BATCHES
    }


def figures_of(rates: Mapping[tuple[str, str, int], list[float]]) -> list[dict[str, Any]]:
    """Returns the rates of each kind, toolkit and number of busy processes, and their share of the rate alone."""
    return [
        {
            "kind": kind, "toolkit": toolkit, "busy": busy, "per_second": spread(values),
            "share_of_alone": statistics.median(values) / statistics.median(alone) if alone else None,
        }
        for (kind, toolkit, busy), values in rates.items()
        for alone in [rates.get((kind, toolkit, 0))]
    ]  # fmt: skip


def main() -> None:
    """Measures all kinds and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, required=True, help="text that is translated")
    parser.add_argument("--model", type=Path, default=Path("build/small-model"), help="small model; fetched if missing")
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="folder that setup.sh made")
    parser.add_argument("--kinds", default="file,calls,server")
    parser.add_argument("--busy", default="0,1,2,4", help="numbers of busy processes, with commas")
    parser.add_argument("--lines", type=int, default=2000, help="lines of the file that are translated at once")
    parser.add_argument("--calls", type=int, default=300, help="lines that are translated one by one")
    parser.add_argument("--seconds", type=float, default=6, help="time of the load of a server")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    fetch_small_model(arguments.model)
    rates: dict[tuple[str, str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        measured = measurements(arguments, Path(folder))
        for number in range(arguments.rounds):
            for busy in map(int, arguments.busy.split(",")):
                for (kind, toolkit), measure in measured.items():
                    with busy_processes(busy):
                        rates.setdefault((kind, toolkit, busy), []).append(measure())
                    write_result(arguments.out, figures=figures_of(rates))  # what was measured if the run is stopped
                    rate = rates[kind, toolkit, busy][-1]
                    print(f"round {number + 1}: {kind}, {toolkit}, {busy} busy: {rate:,.1f}", flush=True)
    for figure in figures_of(rates):
        print(json.dumps(figure))


if __name__ == "__main__":
    main()
