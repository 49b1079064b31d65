"""Translation of text files compared with CTranslate2 and Marian: same model and tokenizer, in one run.

Two timings are taken. "loaded" is the time from opening the input to closing the output in a process that has
translated the file before. "process" is the time of the whole command, including imports and loading of the model. Here
that is `transformer translate`. CTranslate2 has no command and is driven by `engines/with_ctranslate2.py`, which
encodes and decodes with the library `tokenizers` as this project does; so is Marian, by `engines/with_marian.py`.
With --each, every line is a call of its own, by one worker, and "loaded" alone is timed: the latency of a line.

Every engine first runs with all numbers of workers and threads, and the peers with all batch sizes, on the first
lines of a file; the best setting is timed in further rounds, in turn. A timing counts only if the output files agree:
in float32 on 99 % of the lines; for other precisions the share of equal lines and BLEU are reported. The retry of
degenerate output, which the peers lack, is off. Every line may have 50 tokens more than the longest line of its
file; in Marian it may have three times as many as the source, which ends loops sooner.

Marian takes part with post-norm models if its environment is there (`setup.sh FOLDER marian` makes it, 600 MB). Its
decoder differs from that of models trained here in points that no setting changes (see `engines/with_marian.py`): it
loses BLEU, and in float32 it does not count. From pre-norm models it makes no translations at all.

A model stored in int8, such as the one that comes with the program, is compared with the peers' int8 of the same
weights; `python benchmarks/decoding/small_model.py FOLDER` writes the one of version 1.1. Both
round the weights again.

Usage: python benchmarks/decoding/text_files.py --peers FOLDER --model BUNDLE --file SOURCE REFERENCE ... [--rounds 3]
       [--each] [--lines N] [--out FILE]
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from transformer.bundle import load_bundle
from transformer.bundle.bundle import BUNDLE
from transformer.evaluation.scores import corpus_scores
from transformer.storage.verified_folder import VerifiedFolder

sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
from jobs import KEPT
from report import command_line, hardware, spread
from throughput import read, sizes_of

HERE = Path(__file__).parent / "engines"
DRIVERS = {"ours": "ours_text.py", "ctranslate2": "with_ctranslate2.py", "marian": "with_marian.py"}
ENGINES = ("ours-int8", "ctranslate2-int8", "marian-int8", "ours-bf16", "ours-float32", "ctranslate2-float32")
BATCHES = {
    "ours": ("its own",),
    "ctranslate2": ("32 lines", "64 lines", "1024 tokens", "2048 tokens", "4096 tokens"),
    "marian": ("16 lines", "32 lines", "64 lines", "128 lines", "1024 tokens"),
}
SETTINGS = {"ours": ((1, 1), (1, 2), (2, 1)), "ctranslate2": ((1, 1), (1, 2), (2, 1)), "marian": ((1, 1), (2, 1))}
"""Workers, and threads of each."""
SWEPT_LINES, SWEPT_CALLS, EXTRA_TOKENS, AGREEMENT = 1000, 100, 50, 0.99


@dataclass(frozen=True)
class Run:
    """An engine with one setting."""

    engine: str
    workers: int
    threads: int
    batch: str

    @property
    def toolkit(self) -> str:
        """Name of the toolkit."""
        return self.engine.split("-")[0]

    def __str__(self) -> str:
        """The setting."""
        return f"{self.workers} x {self.threads}, {self.batch}"


class Runner:
    """Runs engines, each in a process and an environment of its own."""

    def __init__(self, folder: Path, peers: Path, model: Path) -> None:
        bundle = load_bundle(model, dequantize=True)
        self.is_int8 = VerifiedFolder(model, BUNDLE).manifest.precision == "int8"
        self.folder, self.peers, self.model = folder, peers, model.resolve()
        self.sizes = sizes_of(bundle, folder / "weights.safetensors")
        self.tokenizer = bundle.tokenizers.source
        self.versions: dict[str, Any] = {}
        self.converted = folder / "converted"
        self.converted.mkdir()

    def case(self, source: Path, beam: int, *, each: bool) -> dict[str, Any]:
        """Returns the case of a file."""
        longest = self.sizes["positions"]
        limit = min(longest, max(map(len, self.tokenizer.encode_batch(read(source)))) + 1 + EXTRA_TOKENS)
        names = {"input": str(source.resolve()), "output": str(self.folder / "written"), "name": source.name}
        return names | {"beam": beam, "limit": limit, "longest": longest, "fixed": False, "each": each}

    def first_lines(self, source: Path, number: int | None) -> Path:
        """A file of the first lines of a file, or the file."""
        if number is None:
            return source
        part = self.folder / f"first-{number}-{source.name}"
        part.write_bytes("".join(f"{line}\n" for line in read(source)[:number]).encode())
        return part

    def __call__(self, run: Run, case: dict[str, Any], *, cold: bool = False) -> tuple[float, list[str]]:
        """Seconds, and what was written; of the whole process where it is cold."""
        output = Path(case["output"])
        output.unlink(missing_ok=True)
        command = self._command(run, case, cold=cold)
        begun = time.perf_counter()
        environment = os.environ | KEPT | {"OMP_NUM_THREADS": str(run.workers * run.threads)}
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        seconds = time.perf_counter() - begun
        if ended.returncode:
            raise SystemExit(f"{run.engine}, {run}: {ended.stderr[-2000:]}")
        if not cold:
            outcome = json.loads((self.folder / "result.json").read_text())
            self.versions[run.toolkit] = outcome["versions"]
            seconds = outcome["cases"][case["name"]]["seconds"]
        return seconds, read(output)

    def _command(self, run: Run, case: dict[str, Any], *, cold: bool) -> list[str]:
        precision = run.engine.split("-")[1]
        if cold and run.toolkit == "ours":
            return [
                sys.executable, "-m", "transformer", "translate", str(self.model), "--input", case["input"],
                "--output", case["output"], "--beam", str(case["beam"]), "--length-penalty", "normalize",
                "--max-tokens", str(case["limit"]), "--no-guard", "--precision", precision,
                "--workers", str(run.workers),
            ]  # fmt: skip
        size, unit = run.batch.split() if run.toolkit != "ours" else ("0", "tokens")
        order = {
            "weights": str(self.folder / "weights.safetensors"), "model": str(self.model), "sizes": self.sizes,
            "tokenizer": str(self.model / "tokenizer.json"), "converted": str(self.converted),
            "precision": precision, "workers": run.workers,
            "threads": run.threads, "result": str(self.folder / "result.json"), "cold": cold,
            "cases": [case | {"batch": int(size), "by_tokens": unit == "tokens"}],
        }  # fmt: skip
        (self.folder / "order.json").write_text(json.dumps(order))
        python = sys.executable if run.toolkit == "ours" else str(self.peers / run.toolkit / "bin/python")
        return [python, str(HERE / DRIVERS[run.toolkit]), str(self.folder / "order.json")]


def settings_of(engine: str, *, each: bool) -> list[Run]:
    """The settings that an engine is tried with; those of several workers and of batches not for a line a call."""
    toolkit = engine.split("-")[0]
    return [
        Run(engine, workers, threads, batch)
        for (workers, threads), batch in product(SETTINGS[toolkit], BATCHES[toolkit][: 1 if each else None])
        if not each or workers == 1
    ]


def sweep_settings(runner: Runner, source: Path, beam: int, engines: list[str], *, each: bool) -> dict[str, Any]:
    """Lines a second of every setting on a file's first lines."""
    part = runner.first_lines(source, SWEPT_CALLS if each else SWEPT_LINES)
    case, lines = runner.case(part, beam, each=each), len(read(part))
    return {engine: {run: lines / runner(run, case)[0] for run in settings_of(engine, each=each)} for engine in engines}


def measure(
    runner: Runner, source: Path, reference: Path, beam: int, engines: list[str], rounds: int, kinds: list[str],
    *, each: bool,
) -> dict[str, Any]:  # fmt: skip
    """The sweep on a file's first lines, and the rounds on all of it."""
    sweep = sweep_settings(runner, source, beam, engines, each=each)
    best = {engine: max(rates, key=lambda run: rates[run]) for engine, rates in sweep.items()}
    case, written = runner.case(source, beam, each=each), {}
    rates: dict[str, dict[str, list[float]]] = {engine: {kind: [] for kind in kinds} for engine in engines}
    for number in range(rounds):
        for engine in engines[number % len(engines) :] + engines[: number % len(engines)]:
            for kind in kinds:
                seconds, lines = runner(best[engine], case, cold=kind == "process")
                rates[engine][kind].append(len(lines) / seconds)
                if kind == "loaded":
                    written[engine] = lines
            print(f"{source.name}, beam {beam}, {engine}: {json.dumps(rates[engine])}", flush=True)
    reference_engine = engines[0] if runner.is_int8 or "ours-float32" not in engines else "ours-float32"
    expected = written[reference_engine]
    same = {engine: sum(map(str.__eq__, lines, expected)) / len(expected) for engine, lines in written.items()}
    return {
        "sweep_lines_per_second": {
            engine: {str(run): rate for run, rate in outcome.items()} for engine, outcome in sweep.items()
        },
        "engines": {
            engine: {
                "lines_per_second": {kind: spread(values) for kind, values in rates[engine].items()},
                "setting": str(best[engine]),
                f"same_lines_as_{reference_engine}": same[engine],
                "counts": runner.is_int8 or not engine.endswith("float32") or same[engine] >= AGREEMENT,
                "bleu": corpus_scores(lines, read(reference)[: len(lines)], "none")[0].value,
            }
            for engine, lines in written.items()
        },
        "ours_over": {
            theirs: {
                kind: spread([a / b for a, b in zip(rates[mine][kind], rates[theirs][kind], strict=True)])
                for kind in kinds
            }
            for theirs in engines
            for mine in [f"ours-{theirs.split('-')[1]}"]
            if mine in rates and mine != theirs
        },
    }  # fmt: skip


def main() -> None:
    """Measures all files and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="folder that setup.sh made")
    parser.add_argument("--model", type=Path, required=True, help="a trained bundle with one joint tokenizer")
    parser.add_argument("--file", type=Path, nargs=2, action="append", required=True, metavar=("SOURCE", "REFERENCE"))
    parser.add_argument("--beams", default="1,4")
    parser.add_argument("--engines", help=f"names, with commas; default: {','.join(ENGINES)}, or those in int8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--each", action="store_true", help="translate each line by a call of its own")
    parser.add_argument("--kinds", default="loaded,process", help="what is timed; loaded alone with --each")
    parser.add_argument("--lines", type=int, help="translate so many lines of each file; default: all")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    kinds = ["loaded"] if arguments.each else arguments.kinds.split(",")
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(folder), arguments.peers, arguments.model)
        default = [engine for engine in ENGINES if not runner.is_int8 or engine.endswith("int8")]
        if runner.sizes["norm_order"] == "pre" or not (arguments.peers / "marian").exists():
            default.remove("marian-int8")
        engines = arguments.engines.split(",") if arguments.engines else default
        beams = [int(beam) for beam in arguments.beams.split(",")]
        files = [(runner.first_lines(source, arguments.lines), reference) for source, reference in arguments.file]
        outcome = {
            f"{source.name}, beam {beam}": measure(
                runner, source, reference, beam, engines, arguments.rounds, kinds, each=arguments.each
            )
            for source, reference in files
            for beam in beams
        }
    result = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")) | {"threads": 2},
        "versions": {"python": platform.python_version(), "torch": torch.__version__} | runner.versions,
        "sizes": runner.sizes,
        "files": outcome,
    }
    for point, figures in outcome.items():
        print(f"\n{point}: {json.dumps(figures['ours_over'])}")
        for engine, figure in figures["engines"].items():
            print(f"  {engine:<22}{json.dumps(figure)}")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
