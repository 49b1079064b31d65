"""Translation in int8 beside CTranslate2 and Marian: a small and a base model, on all instructions and on AVX2 alone.

Runs `text_files.py` with the small model (`small_model.py` fetches it), each line by itself and a whole file,
`throughput.py` with a random model of base size and 64 sentences of fixed length, and `serving.py` with the small
model, one after another. The result is written after each step. A command that was stopped, run again, goes on with
the first step that is missing; a step with other numbers of rounds, lines or seconds is measured again.

`--table` prints the tables of `benchmarks/README.md` from a result and measures nothing.

Usage: sh benchmarks/decoding/engines/setup.sh .peers
       sh benchmarks/decoding/engines/setup.sh .peers marian
       sh benchmarks/serving/engines/setup.sh .peers
       python benchmarks/decoding/beside_peers.py --model build/small-model --file SOURCE REFERENCE [--rounds 3]
       python benchmarks/decoding/beside_peers.py --table [--out FILE]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from small_model import fetch_small_model

from transformer.errors import BundleError, OutputError
from transformer.storage.atomic import replace_text

ROOT: Final = Path(__file__).parents[2]
AVX2: Final = {
    "TRANSFORMER_KERNELS": "avx2", "CT2_FORCE_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}  # fmt: skip
"""Variables that keep this project, CTranslate2, oneDNN and MKL from AVX-512. Marian's FBGEMM has none."""
INSTRUCTIONS: Final[dict[str, dict[str, str]]] = {"all instructions": {}, "AVX2": AVX2}
ENGINES: Final = "ours-int8,ctranslate2-int8"
OPTIONAL: Final = ",marian-int8"
BEAMS: Final = {1: "greedy", 4: "beam 4"}
ZENS: Final = {25: {range(0x10, 0x20): 4, range(0x60, 0xB0): 4}, 26: {range(256): 5}}
"""Generations of AMD's processors by family and model; others of family 25 are Zen 3."""


@dataclass(frozen=True)
class Step:
    """A measurement by a script of its own.

    Attributes:
        name: Name in the result.
        arguments: Script in `benchmarks/`, and what follows it.
        environment: Variables that are set.
    """

    name: str
    arguments: list[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def shown_arguments(self) -> list[str]:
        """Arguments in the result: of a file by its whole path, the name alone."""
        return [Path(value).name if Path(value).is_absolute() else value for value in self.arguments]


def steps(arguments: argparse.Namespace) -> list[Step]:
    """Returns the steps of a run."""
    peers, rounds = ["--peers", str(arguments.peers)], ["--rounds", str(arguments.rounds)]
    source, reference = map(str, arguments.file)
    small = ["decoding/text_files.py", *peers, "--model", str(arguments.model), "--file", source, reference, *rounds]
    engines = ENGINES + (OPTIONAL if (arguments.peers / "marian").exists() else "")
    base = ["decoding/throughput.py", *peers, "--parts", "fixed", "--batches", "64", "--engines", engines, *rounds]
    lines = ["--kinds", "loaded", "--lines", str(arguments.lines)]
    measured = [
        Step(f"{name}, {instructions}", values, environment)
        for instructions, environment in INSTRUCTIONS.items()
        for name, values in (
            ("small, one line", [*small, "--each", "--lines", str(arguments.calls)]),
            ("small, file", [*small, *lines]),
            ("base, 64 sentences", base),
        )
    ]
    load = ["--parts", "load,offline", "--seconds", str(arguments.seconds)]
    served = ["serving/serving.py", *peers, "--model", str(arguments.model), "--text", source, *rounds, *load]
    return [*measured, Step("server", served)]


def run_steps(planned: list[Step], path: Path) -> dict[str, Any]:
    """Runs the steps that a result lacks, and writes it after each.

    Raises:
        SystemExit: A step failed; the steps before it are written.
    """
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for step in planned:
            settings = {"arguments": step.shown_arguments, "environment": dict(step.environment)}
            if {key: result.get(step.name, {}).get(key) for key in settings} == settings:
                print(f"{step.name}: measured already", flush=True)
                continue
            out = Path(folder, "out.json")
            script, *values = step.arguments
            command = [sys.executable, str(ROOT / "benchmarks" / script), *values, "--out", str(out)]
            print(f"{step.name}: {' '.join(command)}", flush=True)
            if subprocess.run(command, env=os.environ | step.environment, check=False).returncode:
                raise SystemExit(f"error: the step {step.name!r} failed; run the same command again to go on with it")
            result[step.name] = settings | json.loads(out.read_text())
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(path, json.dumps(result, indent=2) + "\n")
    return result


def machine_name(cpuinfo: str, cores: int) -> str:
    """Returns the name of a machine's folder in `benchmarks/results/`.

    Args:
        cpuinfo: Content of /proc/cpuinfo.
        cores: Number of cores.
    """
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in cpuinfo.splitlines())}
    name = facts.get("model name", "unknown processor").lower()
    family, model = (int(facts.get(key, "0")) for key in ("cpu family", "model"))
    if "amd" in name and family in ZENS:
        zen = next((zen for models, zen in ZENS[family].items() if model in models), 3)
        return f"{'epyc' if 'epyc' in name else 'ryzen'}-zen{zen}-{cores}-cores"
    if "xeon" in name:
        return f"xeon{'-amx' if 'amx_int8' in facts.get('flags', '') else ''}-{cores}-cores"
    words = "".join(character if character.isalnum() else " " for character in name.split("@")[0]).split()
    return f"{'-'.join(words)}-{cores}-cores"


def tables(result: Mapping[str, Any]) -> str:
    """Returns the tables of a result in Markdown; steps that are missing are left out."""
    rows = [
        row
        for name, outcome in result.items()
        for row in (file_rows(name, outcome) if "files" in outcome else fixed_rows(name, outcome))
        if name != "server"
    ]
    parts = [
        "| | | ours | CTranslate2 | Marian | ours over the best peer | BLEU |\n|---|---|---|---|---|---|---|",
        *rows,
    ]
    if "server" in result:
        parts += ["", "| clients | requests a second | p50 | p99 |\n|---|---|---|---|", *server_rows(result["server"])]
    return "\n".join(parts)


def file_rows(name: str, outcome: Mapping[str, Any]) -> list[str]:
    """Returns the rows of `text_files.py`: milliseconds of one line, or lines a second."""
    rows = []
    for point, figures in outcome["files"].items():
        rates = {key.split("-")[0]: figure["lines_per_second"]["loaded"] for key, figure in figures["engines"].items()}
        bleu = ", ".join(f"{figure['bleu']:.1f}" for figure in figures["engines"].values())
        best = min((ratio["loaded"] for ratio in figures["ours_over"].values()), key=lambda ratio: ratio["median"])
        rows.append(row(name, point, rates, best, bleu, is_latency="one line" in name))
    return rows


def fixed_rows(name: str, outcome: Mapping[str, Any]) -> list[str]:
    """Returns the rows of `throughput.py`: sentences a second."""
    rows = []
    for point, figures in outcome.get("fixed", {}).get("points", {}).items():
        rates = {key.split("-")[0]: figure["sentences_per_second"] for key, figure in figures.items()}
        ratio = min(figures["ours-int8"]["over"].values())
        rows.append(row(name, point, rates, {"median": ratio}, "", is_latency=False))
    return rows


def row(
    name: str, point: str, rates: Mapping[str, Mapping[str, float]], ratio: Mapping[str, float], bleu: str,
    *, is_latency: bool,
) -> str:  # fmt: skip
    """Returns a row of the first table."""
    beam = next(words for beam, words in BEAMS.items() if f"beam {beam}" in point)

    def shown(engine: str) -> str:
        if engine not in rates:
            return "-"
        median = rates[engine]["median"]
        return f"{1000 / median:.2f} ms" if is_latency else f"{median:,.0f}/s"

    spread = f" ({ratio['min']:.2f} to {ratio['max']:.2f})" if "min" in ratio else ""
    engines = " | ".join(shown(engine) for engine in ("ours", "ctranslate2", "marian"))
    return f"| {name} | {beam} | {engines} | **{ratio['median']:.2f}**{spread} | {bleu or '-'} |"


def server_rows(outcome: Mapping[str, Any]) -> list[str]:
    """Returns the rows of `serving.py`: ours over the batching server, and 64 clients over the offline rate."""
    over = outcome["load"]["ours_over_peer"]
    rows = []
    for clients in (1, 32, 64):
        ratio = over[f"CTranslate2 batching, {clients} clients"]
        figures = outcome["load"]["servers"]["transformer serve"][str(clients)]
        cells = (
            f"{figures[key]['median']:,.{places}f}{unit}, {ratio[key]['median']:.2f} times"
            for key, places, unit in (("requests_per_second", 0, ""), ("p50_ms", 1, " ms"), ("p99_ms", 1, " ms"))
        )
        rows.append(f"| {clients} | {' | '.join(cells)} |")
    offline = outcome["offline"]["served_over_offline"]["median"]
    return [*rows, f"| 64, over `transformer translate` | {offline:.2f} times | | |"]


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="folder that setup.sh made")
    parser.add_argument("--model", type=Path, default=Path("build/small-model"), help="small model; fetched if missing")
    parser.add_argument("--file", type=Path, nargs=2, metavar=("SOURCE", "REFERENCE"), help="text and its translation")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=2000, help="lines of the file that are translated at once")
    parser.add_argument("--calls", type=int, default=300, help="lines that are translated one by one")
    parser.add_argument("--seconds", type=float, default=10, help="time of each load of a server")
    parser.add_argument("--steps", help="names of steps that begin so, with semicolons; default: all")
    parser.add_argument("--table", action="store_true", help="print the tables of the result alone")
    parser.add_argument("--out", type=Path, help="result; default: benchmarks/results/MACHINE/beside-peers.json")
    arguments = parser.parse_args()
    machine = machine_name(Path("/proc/cpuinfo").read_text(), os.cpu_count() or 1)
    path = arguments.out or ROOT / "benchmarks" / "results" / machine / "beside-peers.json"
    if arguments.table:
        print(tables(json.loads(path.read_text())))
        return
    if arguments.file is None:
        parser.error("give --file SOURCE REFERENCE")
    try:
        fetch_small_model(arguments.model)
    except (BundleError, OutputError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    chosen = tuple((arguments.steps or "").split(";"))
    planned = [step for step in steps(arguments) if step.name.startswith(chosen)]
    print(tables(run_steps(planned, path)))


if __name__ == "__main__":
    main()
