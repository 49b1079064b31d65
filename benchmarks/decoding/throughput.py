"""Translations per second compared with CTranslate2 and transformers: same weights, same token ids, in one run.

There are two parts, either of which can be omitted. "fixed" is a base-size model with random weights, V 32,000,
sentences of 28 source tokens to exactly 32 target tokens, batches of 1 to 128 sentences, greedy and beam 4. "files" is
a trained model on whole files of mixed lengths. Every engine runs with all numbers of workers and threads; the best
setting at each point is timed in further rounds, in turn with the other engines. A timing counts only if the tokens
agree with ours in float32: in float32 on 99 % of the lines; in other precisions the share is reported, and BLEU for
files. Every engine has the memory settings of `training/throughput.py` ("kept"); transformers is omitted for files.

Usage: python benchmarks/decoding/throughput.py --peers FOLDER [--parts fixed,files] [--model BUNDLE]
       [--file SOURCE REFERENCE ...] [--rounds 3] [--out FILE]
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from transformer import build_transformer
from transformer.bundle import Bundle, load_bundle
from transformer.evaluation.scores import corpus_scores
from transformer.kernels import Precision

sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
from jobs import KEPT
from report import command_line, hardware, spread
from roofline import cached_bytes, measure, rate_of_products, roof_seconds

HERE = Path(__file__).parent / "engines"
FILES = {
    "ours": "ours.py",
    "shortlisted": "ours.py",
    "shortest": "ours.py",
    "ctranslate2": "with_ctranslate2.py",
    "marian": "with_marian.py",
    "transformers": "with_transformers.py",
}
BASE = {"N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "vocabulary": 32000, "positions": 512}
SOURCE_TOKENS, TARGET_TOKENS = 28, 32
BATCHES = {1: 8, 8: 32, 32: 128, 64: 128, 128: 256}
"""Sentences at a time -> sentences in all."""
ENGINES = ("ours-int8", "ctranslate2-int8", "ours-float32", "ctranslate2-float32", "ours-bf16", "transformers-float32")
SETTINGS = "1x1,1x2,2x1"
"""Workers, and threads of each."""
EXTRA_TOKENS = 50
MOST_SENTENCES = 128
"""In files, a larger batch is meant in tokens."""
SWEPT_LINES = 300
"""Of a file that every setting is tried on; the rounds translate all of it."""
AGREEMENT = 0.99


@dataclass(frozen=True)
class Run:
    """An engine with one setting."""

    engine: str
    workers: int
    threads: int

    @property
    def setting(self) -> str:
        """Workers and threads."""
        return f"{self.workers} x {self.threads}"

    @property
    def toolkit(self) -> str:
        """Name of the toolkit."""
        return self.engine.split("-")[0]

    @property
    def precision(self) -> str:
        """Precision of the computation."""
        return self.engine.split("-")[1]


class Runner:
    """Runs engines, each in a process and an environment of its own."""

    def __init__(self, folder: Path, peers: Path, weights: Path, sizes: dict[str, Any]) -> None:
        self.folder, self.peers, self.weights, self.sizes = folder, peers, weights, sizes
        self.versions: dict[str, Any] = {}
        self.order: dict[str, Any] = {}

    def __call__(self, run: Run, cases: list[dict[str, Any]]) -> dict[str, Any]:
        """The results of the cases by name; none if the engine fails, whose message is printed."""
        if not cases:
            return {}
        order, result = self.folder / "order.json", self.folder / "result.json"
        result.unlink(missing_ok=True)
        order.write_text(
            json.dumps({
                "weights": str(self.weights), "sizes": self.sizes, "precision": run.precision, "cases": cases,
                "workers": run.workers, "threads": run.threads, "result": str(result), "engine": run.engine,
            } | self.order)
        )  # fmt: skip
        python = sys.executable if FILES[run.toolkit] == "ours.py" else str(self.peers / run.toolkit / "bin/python")
        command = [python, HERE / FILES[run.toolkit], order]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | KEPT)
        if not result.exists():
            print(f"{run}: {ended.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            return {}
        outcome: dict[str, Any] = json.loads(result.read_text())
        self.versions[run.toolkit] = outcome["versions"]
        return {name: case | {"peak_mib": outcome["peak_mib"]} for name, case in outcome["cases"].items()}


def settings_of(engine: str, settings: str) -> Iterator[Run]:
    """The settings that an engine is tried with."""
    for workers, threads in ((int(number) for number in setting.split("x")) for setting in settings.split(",")):
        only = {"transformers": (1, 2), "marian": (workers, 1)}.get(engine.split("-")[0], (workers, threads))
        if (workers, threads) == only:
            yield Run(engine, workers, threads)


def base_weights(path: Path) -> dict[str, Any]:
    """Writes a random model of the paper's base size and wiring."""
    torch.manual_seed(1)
    model = build_transformer(
        BASE["vocabulary"], BASE["vocabulary"], BASE["positions"], BASE["positions"], norm_order="post",
        share_embeddings="all",
    )  # fmt: skip
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, path)
    return BASE | {"norm_order": "post"}


def fixed_cases(path: Path, batches: list[int]) -> list[dict[str, Any]]:
    """Batches of like sentences; writes their tokens. One sentence at a time is a matter of latency: by one worker."""
    generator = torch.Generator().manual_seed(2)
    shape = max(BATCHES.values()), SOURCE_TOKENS - 1
    tokens = torch.randint(4, BASE["vocabulary"], shape, generator=generator).tolist()
    path.write_text(json.dumps([[*line, 2] for line in tokens]))
    common = {"sources": str(path), "fixed": True, "limit": TARGET_TOKENS, "by_tokens": False}
    return [
        {
            "name": f"beam {beam}, batch {batch}", "beam": beam, "batch": batch, "sentences": sentences,
            "one_worker": batch == 1, **common,
        }
        for beam in (1, 4)
        for batch, sentences in BATCHES.items()
        if (beam, batch) != (4, 128) and batch in batches
    ]  # fmt: skip


def file_cases(bundle: Bundle, files: list[tuple[Path, Path]], folder: Path) -> list[dict[str, Any]]:
    """Whole files; writes their tokens. Batches are of so many sentences, or of so many tokens."""
    cases = []
    for source, _ in files:
        lines = read(source)
        longest = bundle.config.model_dump()["src_seq_len"]
        tokens = [[*ids[: longest - 1], 2] for ids in bundle.tokenizers.source.encode_batch(lines)]
        limit = min(longest, max(map(len, tokens)) + EXTRA_TOKENS)
        path = folder / f"{source.name}.json"
        path.write_text(json.dumps(tokens))
        common = {"sources": str(path), "fixed": False, "limit": limit, "sentences": len(lines)}
        cases += [
            {
                "name": f"{source.name}, beam {beam}, batch {batch}", "beam": beam, "batch": batch,
                "by_tokens": batch > MOST_SENTENCES, "sweep_sentences": min(len(lines), SWEPT_LINES), **common,
            }
            for beam in (1, 4)
            for batch in (32, 64, 1024, 2048, 4096, 8192)
        ]  # fmt: skip
    return cases


def read(path: Path) -> list[str]:
    """Its lines, which only a line feed ends."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def fits(case: dict[str, Any], run: Run) -> bool:
    """Whether a setting may be tried on a case."""
    return run.workers == 1 or not case.get("one_worker")


def point_of(case: str) -> str:
    """Point at which engines are compared; for files, every engine has its best batch size."""
    return case.rsplit(", batch", 1)[0] if not case.startswith("beam") else case


def compare(
    engines: list[str], cases: list[dict[str, Any]], runner: Runner, rounds: int, settings: str,
    bounds: Callable[[Run, str], dict[str, float]] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The sweep, and the rounds of the best setting of every engine at every point.

    What bounds ours is measured in each round after it, since the machine is faster at some times than at others.
    """
    by_name = {case["name"]: case for case in cases}
    sweep: dict[str, dict[str, float]] = {}
    tokens: dict[tuple[str, str], list[list[int]]] = {}
    best: dict[tuple[str, str], tuple[float, Run, str]] = {}
    for engine in engines:
        sweep_cases = [case | {"sentences": case.get("sweep_sentences", case["sentences"])} for case in cases]
        for run in settings_of(engine, settings):
            for name, result in runner(run, [case for case in sweep_cases if fits(case, run)]).items():
                rate = len(result["tokens"]) / result["seconds"]
                sweep.setdefault(f"{engine} {run.setting}", {})[name] = rate
                tokens[engine, name] = result["tokens"]
                key = engine, point_of(name)
                if key not in best or rate > best[key][0]:
                    best[key] = rate, run, name
            print(json.dumps({f"{engine} {run.setting}": sweep.get(f"{engine} {run.setting}")}), flush=True)
    points = list(dict.fromkeys(point_of(name) for name in by_name))
    rates: dict[str, dict[str, list[float]]] = {point: {engine: [] for engine in engines} for point in points}
    shares: dict[tuple[str, str], list[dict[str, tuple[float, float]]]] = {}
    for number in range(rounds):
        for engine in engines[number % len(engines) :] + engines[: number % len(engines)]:
            chosen: dict[Run, list[str]] = {}
            for point in points:
                if (engine, point) in best:
                    chosen.setdefault(best[engine, point][1], []).append(best[engine, point][2])
            for run, names in chosen.items():
                for name, result in runner(run, [by_name[name] for name in names]).items():
                    tokens[engine, name] = result["tokens"]
                    point, rate = point_of(name), len(result["tokens"]) / result["seconds"]
                    rates[point][engine].append(rate)
                    if bounds and run.toolkit == "ours":
                        outcome = {kind: (bound, rate / bound) for kind, bound in bounds(run, point).items()}
                        shares.setdefault((engine, point), []).append(outcome)
        shown = {point: {engine: v[-1] for engine, v in rate.items() if v} for point, rate in rates.items()}
        print(f"round {number + 1}: {json.dumps(shown)}", flush=True)
    return {
        "sweep_sentences_per_second": sweep,
        "points": {
            point: {
                engine: {
                    "sentences_per_second": spread(values),
                    "setting": f"{best[engine, point][1].setting}, {best[engine, point][2]}",
                    "same_lines_as_ours_in_float32": agreement(tokens, engine, best[engine, point][2]),
                    **shares_of(shares.get((engine, point), [])),
                }
                for engine, values in rates[point].items()
                if values
            }
            for point in points
        },
        "tokens": {f"{engine}|{name}": tokens[engine, name] for (engine, _), (_, _, name) in best.items()},
    }  # fmt: skip


def agreement(tokens: dict[tuple[str, str], list[list[int]]], engine: str, name: str) -> float | None:
    """Share of lines whose tokens are those of ours in float32."""
    ours = tokens.get(("ours-float32", name))
    if ours is None:
        return None
    pairs = list(zip(tokens[engine, name], ours, strict=False))
    return sum(a == b for a, b in pairs) / len(pairs)


def add_ratios(points: dict[str, Any]) -> None:
    """Ours over each rival at every point, where the rival counts."""
    for figures in points.values():
        for engine, figure in figures.items():
            same = figure["same_lines_as_ours_in_float32"]
            figure["counts"] = not engine.endswith("float32") or (same is not None and same >= AGREEMENT)
        for engine, figure in figures.items():
            if engine.startswith("ours"):
                mine = figure["sentences_per_second"]["median"]
                figure["over"] = {
                    rival: mine / other["sentences_per_second"]["median"]
                    for rival, other in figures.items()
                    if not rival.startswith("ours") and other["counts"]
                }


def shares_of(rounds: list[dict[str, tuple[float, float]]]) -> dict[str, Any]:
    """Returns the bounds of an engine in sentences per second, and the share that it reaches, over the rounds."""
    if not rounds:
        return {}
    return {
        title: {kind: spread([bounds_of_round[kind][place] for bounds_of_round in rounds]) for kind in rounds[0]}
        for place, title in enumerate(("bounds", "share_of_bounds"))
    }


def bounds_of(run: Run, point: str) -> dict[str, float]:
    """Sentences a second at a point of fixed length, measured now.

    "operations and bytes" is the longer of both, phase by phase; "operations" those of products alone; "products" are
    made, the last with the ranking of its tokens, and nothing else; "products, then caches" reads keys and values after
    them, at the rate of memory.
    """
    beam, batch = (int(part.split()[1]) for part in point.split(", "))
    precision: Precision = run.precision  # pyright: ignore[reportAssignmentType]
    rates = measure(precision)
    lengths = {"batch": batch, "beam": beam, "source": SOURCE_TOKENS, "target": TARGET_TOKENS}
    products = rate_of_products(BASE, precision, workers=run.workers, threads=run.threads, **lengths)
    caches = sum(
        cached_bytes(BASE, precision, sentences=1, positions=step + SOURCE_TOKENS)
        for step in range(1, TARGET_TOKENS + 1)
    )
    return {
        "operations and bytes": 1 / roof_seconds(BASE, precision, rates, sentences=1, **lengths),
        "operations": 1 / roof_seconds(BASE, precision, rates, sentences=1, products_alone=True, **lengths),
        "products": products,
        "products, then caches": 1 / (1 / products + caches / rates.bytes),
    }


def add_bleu(result: dict[str, Any], bundle: Bundle, files: list[tuple[Path, Path]]) -> None:
    """BLEU of what each engine wrote."""
    references = {source.name: read(reference) for source, reference in files}
    for point, figures in result["points"].items():
        for engine, figure in figures.items():
            name = figure["setting"].split(", ", 1)[1]
            lines = [bundle.tokenizers.target.decode(line) for line in result["tokens"][f"{engine}|{name}"]]
            figure["bleu"] = corpus_scores(lines, references[point.split(", ")[0]], "none")[0].value


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="the folder that setup.sh made")
    parser.add_argument("--parts", default="fixed,files")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--model", type=Path, help="a trained bundle, for the files")
    parser.add_argument("--file", type=Path, nargs=2, action="append", default=[], metavar=("SOURCE", "REFERENCE"))
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)), help="of the fixed part, with commas")
    parser.add_argument("--settings", default=SETTINGS, help="workers x threads of each, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    """Runs the parts and prints the figures."""
    arguments = parse()
    torch.set_num_threads(2)
    engines, parts = arguments.engines.split(","), arguments.parts.split(",")
    result: dict[str, Any] = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")) | {"threads": 2},
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "fixed" in parts:
            sizes = base_weights(folder / "weights.safetensors")
            runner = Runner(folder, arguments.peers, folder / "weights.safetensors", sizes)
            outcome = compare(
                engines,
                fixed_cases(folder / "sources.json", [int(size) for size in arguments.batches.split(",")]),
                runner,
                arguments.rounds,
                arguments.settings,
                bounds_of,
            )
            del outcome["tokens"]
            add_ratios(outcome["points"])
            result["fixed"] = {
                "sizes": sizes, **outcome
            }  # fmt: skip
            result["versions"] |= runner.versions
        if "files" in parts:
            bundle, files = load_bundle(arguments.model), [tuple(pair) for pair in arguments.file]
            sizes = sizes_of(bundle, folder / "trained.safetensors")
            runner = Runner(folder, arguments.peers, folder / "trained.safetensors", sizes)
            fast = [engine for engine in engines if not engine.startswith("transformers")]
            outcome = compare(fast, file_cases(bundle, files, folder), runner, arguments.rounds, arguments.settings)
            add_bleu(outcome, bundle, files)
            del outcome["tokens"]
            add_ratios(outcome["points"])
            result["files"] = {"sizes": sizes, **outcome}
            result["versions"] |= runner.versions
    for part in ("fixed", "files"):
        for point, figures in result.get(part, {}).get("points", {}).items():
            print(f"\n{point}")
            for engine, figure in figures.items():
                print(f"  {engine:<22}{figure['sentences_per_second']['median']:9.1f}/s  {json.dumps(figure)}")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


def sizes_of(bundle: Bundle, path: Path) -> dict[str, Any]:
    """The sizes of a trained model of one embedding matrix; writes its weights."""
    config = bundle.config.model_dump()
    save_file({name: tensor.clone() for name, tensor in bundle.model.state_dict().items()}, path)
    sizes = {name: config[name] for name in ("N", "d_model", "d_ff", "h", "norm_order")}
    sizes |= {side: config[side] or config["N"] for side in ("encoder_layers", "decoder_layers")}
    return sizes | {"vocabulary": config["src_vocab_size"], "positions": config["src_seq_len"]}


if __name__ == "__main__":
    main()
