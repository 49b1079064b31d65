"""Training speed and memory of this project beside its peers: same weights, same batches, same dropout, one run.

Engines are `ours`, `transformers` (MarianMTModel), `torch-nn` (torch.nn.Transformer), `eole` and `joeynmt`, each with a
precision: `ours-bf16`, `transformers-fp32`. Settings are appended: `+compile` puts `torch.compile` around a peer's model,
`+plain` gives transformers and torch.nn the plain attention in place of torch's fused one, and `+kept` has the C library
keep freed memory with the process, which spares a toolkit that makes large tensors their page faults.

Shapes:
- `tiny`: Transformer-Tiny (4+4 layers, d 128, d_ff 256, 4 heads, dropout 0.3) on Multi30k en-de, a joint vocabulary of
  10,000, real sentences bucketed by our planner at 4096 tokens a batch;
- `base`: the paper's base (6+6, d 512, d_ff 2048, 8 heads, dropout 0.1), V 32000, 64 pairs of 32 tokens, random ids.

All tie both embeddings and the projection, drop out at residual connections and embeddings alone, smooth labels by 0.1,
clip the gradient norm at 1 and use Adam. Post-norm, but for Eole, whose decoder has only pre-norm: it is compared with
our pre-norm model.

A timing counts only if the losses agree in the run. Once an engine, all start from the same weights with dropout 0: the
loss a token on two batches, a few updates, the loss again, each within 1e-3 of ours in float32 (2e-2 in bf16). After
each timed run the loss with dropout off lies within 5e-2 of ours, since each engine draws its own dropout.

Rounds go over all engines in turn, each in its own process, so that what else the machine does hits all alike; ratios
are taken within a round. The rate at which the machine multiplies the model's own matrices (`product_rates.py`) is
measured in every round. Peers live in environments of their own: `sh benchmarks/training_engines/setup.sh FOLDER`.

Usage: python benchmarks/training.py --shape tiny --peers FOLDER [--engines NAME,...] [--rounds 3] [--threads 2]
       [--device cuda] [--out FILE]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from product_rates import step_products, total_flops, weighted_rate
from transformer import build_transformer
from transformer.data.batches import plan_epoch
from transformer.data.source import pair_batch
from transformer.protocols import PairBatch
from transformer.text.control import N_CONTROL
from transformer.text.settings import TokenizerSettings
from transformer.text.tokenizer import Tokenizer

HERE = Path(__file__).parent / "training_engines"
FILES = {
    "ours": "ours.py", "transformers": "with_transformers.py", "torch-nn": "with_torch_nn.py",
    "eole": "with_eole.py", "joeynmt": "with_joeynmt.py",
}  # fmt: skip
PEERS_WITH_ENVIRONMENT = ("transformers", "eole", "joeynmt")
PRE_NORM_ONLY = ("eole",)
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16"}
CHECK_TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}
TRAINED_TOLERANCE = 5e-2
LARGEST = str(2**31 - 1)
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": LARGEST, "MALLOC_TOP_PAD_": str(2**26)}


@dataclass(frozen=True)
class Shape:
    """A model, its rate and how many updates are done."""

    N: int
    d_model: int
    d_ff: int
    h: int
    dropout: float
    learning_rate: float
    warm_steps: int
    steps: int
    check_steps: int


SHAPES = {
    "tiny": Shape(4, 128, 256, 4, 0.3, 1e-3, warm_steps=4, steps=24, check_steps=4),
    "base": Shape(6, 512, 2048, 8, 0.1, 1e-4, warm_steps=2, steps=5, check_steps=2),
}


@dataclass(frozen=True)
class Named:
    """An engine's name, taken apart."""

    name: str
    toolkit: str
    precision: str
    compiled: bool
    plain_attention: bool
    kept: bool

    @property
    def norm_order(self) -> str:
        """The order that the toolkit can do."""
        return "pre" if self.toolkit in PRE_NORM_ONLY else "post"


def named(name: str) -> Named:
    """Reads e.g. `transformers-bf16+compile`."""
    engine, *options = name.split("+")
    toolkit, _, precision = engine.rpartition("-")
    if toolkit not in FILES or precision not in PRECISIONS or not {*options} <= {"compile", "plain", "kept"}:
        raise SystemExit(
            f"engine={name!r} is unknown; give TOOLKIT-PRECISION[+compile][+plain][+kept] of {[*FILES]} and fp32, bf16"
        )
    return Named(name, toolkit, PRECISIONS[precision], "compile" in options, "plain" in options, "kept" in options)


def multi30k(vocabulary: int, n_batches: int) -> tuple[list[PairBatch], int]:
    """Real batches and the size of the vocabulary."""
    folder = Path(os.environ.get("TRANSFORMER_DATA", "../shared/data")) / "multi30k"
    sides = [(folder / f"train.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "de")]
    tokenizer = Tokenizer.train([*sides[0], *sides[1]], TokenizerSettings(vocab_size=vocabulary))
    source, target = ([np.array(ids, np.int32) for ids in tokenizer.encode_batch(side)] for side in sides)
    lengths = np.array([[len(s) + 1, len(t) + 1] for s, t in zip(source, target, strict=True)], np.int32)
    planned = plan_epoch(lengths, 4096, seed=1, epoch=0)[:n_batches]
    batches = [pair_batch([source[i] for i in ids], [target[i] for i in ids]) for ids in planned]
    return batches, tokenizer.vocab_size


def random_pairs(vocabulary: int, n_batches: int) -> tuple[list[PairBatch], int]:
    """Batches of 64 pairs of 32 tokens each, without padding."""
    generator = np.random.default_rng(1)
    sides = [generator.integers(N_CONTROL, vocabulary, (2, n_batches, 64, 31), dtype=np.int32)]
    return [pair_batch([*source], [*target]) for source, target in zip(*sides[0], strict=True)], vocabulary


def make_job(shape: Shape, batches: list[PairBatch], vocabulary: int, folder: Path) -> dict[str, Any]:
    """Writes batches and weights, one set for each norm order; returns what all jobs have in common."""
    tensors = {
        f"{side}_{index}": getattr(batch, side).to(torch.int32)
        for index, batch in enumerate(batches)
        for side in ("src", "tgt", "labels")
    }
    save_file(tensors, folder / "batches.safetensors")
    positions = max(max(batch.src.size(1), batch.tgt.size(1)) for batch in batches)
    sizes = {name: getattr(shape, name) for name in ("N", "d_model", "d_ff", "h", "dropout")}
    for norm_order in ("pre", "post"):
        torch.manual_seed(1)
        model = build_transformer(
            vocabulary, vocabulary, positions, positions, **sizes, norm_order=norm_order, share_embeddings="all"
        )
        for name, parameter in model.named_parameters():
            if name.endswith((".alpha", ".beta")):  # gains and offsets that a mix-up of norms would show
                torch.nn.init.normal_(parameter, mean=float(name.endswith(".alpha")), std=0.1)
        save_file({name: p.detach() for name, p in model.named_parameters()}, folder / f"{norm_order}.safetensors")
    sizes |= {"vocabulary": vocabulary, "positions": positions}
    return {
        "batches": str(folder / "batches.safetensors"), "sizes": sizes, "label_smoothing": 0.1, "clip_norm": 1.0,
        "learning_rate": shape.learning_rate, "warm_steps": shape.warm_steps, "check_steps": shape.check_steps,
    }  # fmt: skip


@dataclass(frozen=True)
class Runner:
    """Starts engines as processes of their own."""

    job: dict[str, Any]
    folder: Path
    pythons: dict[str, str]

    def __call__(self, engine: Named, mode: str, seed: int, norm_order: str | None = None) -> dict[str, Any]:
        """Does one job and returns the engine's result, or its last words as `error`."""
        norm_order = norm_order or engine.norm_order
        sizes = self.job["sizes"] | {"norm_order": norm_order}
        if mode == "check":
            sizes["dropout"] = 0.0
        own = {
            "mode": mode,
            "seed": seed,
            "precision": engine.precision,
            "compiled": engine.compiled,
            "plain_attention": engine.plain_attention,
            "sizes": sizes,
        }
        files = {"weights": self.folder / f"{norm_order}.safetensors", "result": self.folder / "result.json"}
        files["result"].unlink(missing_ok=True)
        path = self.folder / "job.json"
        path.write_text(json.dumps(self.job | own | {k: str(v) for k, v in files.items()} | {"started": time.time()}))
        python = self.pythons.get(engine.toolkit, sys.executable)
        environment = {**os.environ, **(KEPT if engine.kept else {})}
        environment.pop("OMP_NUM_THREADS", None)
        done = subprocess.run(
            [python, str(HERE / FILES[engine.toolkit]), str(path)],
            capture_output=True, text=True, env=environment, check=False,
        )  # fmt: skip
        if done.returncode or not files["result"].exists():
            return {"error": done.stderr[-2000:] or f"exit status {done.returncode}"}
        return json.loads(files["result"].read_text())


def check_all(engines: list[Named], runner: Runner) -> dict[str, Any]:
    """Whether each engine computes our losses: before and after a few updates without dropout."""
    ours = named("ours-fp32")
    orders = sorted({engine.norm_order for engine in engines})
    references = {order: runner(ours, "check", 1, order) for order in orders}
    checks: dict[str, Any] = {}
    for engine in engines:
        reference = references[engine.norm_order]
        result = reference if engine == ours else runner(engine, "check", 1)
        checks[engine.name] = compared(result, reference, CHECK_TOLERANCE[engine.precision])
        print(f"check {engine.name}: {json.dumps(checks[engine.name])}", flush=True)
    return checks


def compared(result: dict[str, Any], reference: dict[str, Any], tolerance: float) -> dict[str, Any]:
    """The losses of an engine beside ours; `agrees` if each differs by at most `tolerance` of ours."""
    if "error" in result or "error" in reference:
        return {"agrees": False, "error": result.get("error") or reference.get("error")}
    pairs = list(zip(result["losses"], reference["losses"], strict=True))
    difference = max(abs(loss - expected) / expected for loss, expected in pairs)
    named_differences = {"differences": result["differences"], "versions": result["versions"]}
    return {
        "agrees": difference <= tolerance, "losses": result["losses"], "ours": reference["losses"],
        "largest_relative_difference": difference, "tolerance": tolerance,
        "parameters": result["parameters"], **named_differences,
    }  # fmt: skip


def time_all(engines: list[Named], runner: Runner, rounds: int, products: Any, device: torch.device) -> list[Any]:
    """Each round: the machine's product rates, then every engine once."""
    results = []
    for number in range(rounds):
        rates = {
            precision: weighted_rate(products, getattr(torch, precision), device) for precision in PRECISIONS.values()
        }
        # Each round begins with another engine, so that none always follows the same one.
        order = engines[number % len(engines) :] + engines[: number % len(engines)]
        timings = {}
        for engine in order:
            timings[engine.name] = runner(engine, "time", number + 1)
            keys = ("target_tokens_per_second", "steady_peak_mib", "losses", "error")
            shown = {key: timings[engine.name][key] for key in keys if key in timings[engine.name]}
            print(f"round {number + 1} {engine.name}: {json.dumps(shown)}", flush=True)
        results.append({"product_rates": rates, "engines": {engine.name: timings[engine.name] for engine in engines}})
    return results


def spread(values: list[float]) -> dict[str, float]:
    """Median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summary(engines: list[Named], checks: dict[str, Any], rounds: list[Any], flops: float) -> dict[str, Any]:
    """The figures of each engine over the rounds, and of our engines over each peer in the same round."""
    figures: dict[str, Any] = {}
    for engine in engines:
        timings = [entry["engines"][engine.name] for entry in rounds]
        if any("error" in timing for timing in timings):
            figures[engine.name] = {"counts": False, "error": next(t["error"] for t in timings if "error" in t)}
            continue
        losses = [timing["losses"][0] for timing in timings]
        seconds = [statistics.fmean(timing["step_seconds"]) for timing in timings]
        keys = ("target_tokens_per_second", "tokens_per_second", "seconds_to_first_step", "peak_mib", "steady_peak_mib")
        figures[engine.name] = {
            "counts": checks[engine.name]["agrees"],
            **{key: spread([timing[key] for timing in timings]) for key in keys},
            "steady_peak_minus_import_mib": spread([t["steady_peak_mib"] - t["after_import_mib"] for t in timings]),
            "loss_after_training": spread(losses),
            "share_of_product_rate": {
                precision: spread(
                    [flops / s / r["product_rates"][precision]["rate"] for s, r in zip(seconds, rounds, strict=True)]
                )
                for precision in PRECISIONS.values()
            },
        }
    ours = [engine for engine in engines if engine.toolkit == "ours" and "error" not in figures[engine.name]]
    if ours:
        expected = figures[ours[0].name]["loss_after_training"]["median"]
        for engine in engines:
            figure = figures[engine.name]
            if "error" not in figure and engine.norm_order == "post":
                off = abs(figure["loss_after_training"]["median"] - expected) / expected
                figure["trained_loss_relative_difference"] = off
                figure["counts"] = figure["counts"] and off <= TRAINED_TOLERANCE
    counting = [engine.name for engine in engines if figures[engine.name]["counts"] and engine.toolkit != "ours"]
    ratios = {mine.name: {peer: ratio(rounds, mine.name, peer) for peer in counting} for mine in ours}
    return {"figures": figures, "ours_over_peer": ratios}


def ratio(rounds: list[Any], mine: str, peer: str) -> dict[str, Any]:
    """Speed and memory of ours over a peer's, within each round."""
    keys = ("target_tokens_per_second", "peak_mib", "steady_peak_mib")
    return {
        key: spread([entry["engines"][mine][key] / entry["engines"][peer][key] for entry in rounds]) for key in keys
    }


def print_table(result: dict[str, Any]) -> None:
    """One line an engine."""
    print(
        f"\n{'engine':<28} {'target/s':>9} {'min':>7} {'max':>7} {'peak MiB':>9} {'first s':>8} {'% bf16':>7}  counts"
    )
    for name, figure in result["figures"].items():
        if "error" in figure:
            print(f"{name:<28} {figure['error'].strip().splitlines()[-1]}")
            continue
        speed, peak, first = (figure[key] for key in ("target_tokens_per_second", "peak_mib", "seconds_to_first_step"))
        share = 100 * figure["share_of_product_rate"]["bfloat16"]["median"]
        print(
            f"{name:<28} {speed['median']:>9.0f} {speed['min']:>7.0f} {speed['max']:>7.0f} {peak['median']:>9.0f} "
            f"{first['median']:>8.1f} {share:>7.1f}  {figure['counts']}"
        )
    for mine, peers in result["ours_over_peer"].items():
        for peer, ratios in peers.items():
            speed, memory = ratios["target_tokens_per_second"], ratios["peak_mib"]
            print(
                f"{mine} / {peer}: {speed['median']:.2f} times the speed ({speed['min']:.2f} to {speed['max']:.2f}), "
                f"{100 * memory['median']:.0f} % of the memory"
            )


def hardware(device: torch.device) -> dict[str, Any]:
    """What the figures hold for."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    found = {"cpu": ", ".join(names), "cores": os.cpu_count(), "system": platform.platform()}
    return found | ({"gpu": torch.cuda.get_device_name()} if device.type == "cuda" else {})


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    default = (
        "ours-fp32,transformers-fp32,transformers-bf16,torch-nn-fp32,torch-nn-bf16,eole-fp32,eole-bf16,joeynmt-fp32"
    )
    parser.add_argument("--engines", default=default, help="names, separated by commas")
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="the folder that setup.sh made")
    parser.add_argument(
        "--peer-python", action="append", default=[], metavar="TOOLKIT=PATH", help="another interpreter"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="timed updates; 24 for tiny, 5 for base if not given")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    """Checks and times all engines and prints the summary."""
    arguments = parse()
    engines = [named(name) for name in arguments.engines.split(",")]
    shape, device = SHAPES[arguments.shape], torch.device(arguments.device)
    steps = arguments.steps or shape.steps
    pythons = {toolkit: str(arguments.peers / toolkit / "bin/python") for toolkit in PEERS_WITH_ENVIRONMENT}
    pythons |= dict(entry.split("=", 1) for entry in arguments.peer_python)
    torch.set_num_threads(arguments.threads)
    n_batches = shape.warm_steps + steps
    batches, vocabulary = multi30k(10_000, n_batches) if arguments.shape == "tiny" else random_pairs(32_000, n_batches)
    sizes = {name: getattr(shape, name) for name in ("N", "d_model", "d_ff", "h")} | {"vocabulary": vocabulary}
    dimensions = [(len(batch.src), batch.src.size(1), batch.tgt.size(1)) for batch in batches[shape.warm_steps :]]
    scored = [batch.scored_tokens for batch in batches[shape.warm_steps :]]
    per_step = [total_flops(step_products(*d, **sizes, scored=s)) for d, s in zip(dimensions, scored, strict=True)]
    middle = int(np.argsort(per_step)[len(per_step) // 2])
    products = step_products(*dimensions[middle], **sizes, scored=scored[middle])
    with tempfile.TemporaryDirectory() as folder:
        job = make_job(shape, batches, vocabulary, Path(folder))
        job |= {"threads": arguments.threads, "device": arguments.device}
        runner = Runner(job, Path(folder), pythons)
        checks = check_all(engines, runner)
        rounds = time_all(engines, runner, arguments.rounds, products, device)
    result = {
        "command": " ".join(["python benchmarks/training.py", *sys.argv[1:]]),
        "hardware": hardware(device) | {"threads": arguments.threads},
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "shape": asdict(shape) | {
            "vocabulary": vocabulary, "steps": steps, "target_tokens": sum(scored),
            "padding_of_target": 1 - sum(scored) / sum(pairs * target for pairs, _, target in dimensions),
            "flops_per_step": statistics.fmean(per_step), "flops_per_target_token": sum(per_step) / sum(scored),
        },
        **summary(engines, checks, rounds, statistics.fmean(per_step)),
        "checks": checks,
        "rounds": rounds,
    }  # fmt: skip
    print_table(result)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
