"""Training speed and memory compared with other toolkits: same weights, same batches, same dropout, in one run.

Engines are `ours`, `transformers` (MarianMTModel), `torch-nn` (torch.nn.Transformer), `eole` and `joeynmt`, each with a
precision: `ours-bf16`, `transformers-fp32`. Suffixes select settings. `+compile` applies `torch.compile` to the model
of a peer, and `+plain` selects plain attention instead of torch's fused one for transformers and torch.nn. `+kept` sets
environment variables that no manual of a peer names: the C library retains freed memory, which avoids page faults for
large tensors, and oneDNN caches the kernels that it compiles for every shape of batch. `ours-bf16+checkpointed` is our
`training.activation_checkpointing`.

Shapes:
- `tiny`: Transformer-Tiny (4+4 layers, d 128, d_ff 256, 4 heads, dropout 0.3) on Multi30k en-de, a joint vocabulary of
  10,000, real sentences bucketed by our planner at 4096 tokens a batch;
- `base`: the paper's base (6+6, d 512, d_ff 2048, 8 heads, dropout 0.1), V 32000, 64 pairs of 32 tokens, random ids;
- `big`: the paper's big (d 1024, d_ff 4096, 16 heads, dropout 0.3), otherwise as base.

All models tie both embeddings and the projection, apply dropout to residual connections and embeddings only, smooth
labels by 0.1, clip the gradient norm at 1 and use Adam. They are post-norm, except Eole, whose decoder supports
pre-norm only: it is compared with our pre-norm model.

Every shape of batch runs once before the timing, because libraries compile for shapes in the first epoch.

A timing counts only if the losses agree in the run. Once per engine, all start from the same weights with dropout 0:
the loss per token on two batches, a few updates, the loss again. Both lie within 2e-5 of ours in float32, which an
engine timed in bf16 must show too, and within 1e-3 in bf16. (One wrong bias of a value, positions in another order or
smoothing left out change the loss by 5e-5 or more.) In the timed run dropout is applied to as many elements as at the
paper's sites. Afterwards the loss without dropout lies within 5e-2 of ours if the norms are placed alike: each engine
draws its own dropout.

Rounds run all engines in turn, each in its own process, so that other load on the machine affects all alike; ratios
are taken within a round. With `--at-once` the processes of a round run side by side and take turns of one update, so
that even load of a few seconds affects all alike; this needs the memory of all of them. The rate at which the machine
multiplies the matrices of the model (`product_rates.py`) is measured in every round; on a GPU also that of large square
matrices in bf16, of which each engine reaches its `share_of_peak`. Peers run in environments of their own:
`sh benchmarks/training/engines/setup.sh FOLDER`.

Usage: python benchmarks/training/throughput.py --shape tiny --peers FOLDER [--engines NAME,...] [--rounds 3]
       [--threads 2] [--device cuda] [--peer-python transformers=PATH] [--out FILE]
"""

import argparse
import json
import platform
import signal
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jobs import PRECISIONS, SHAPES, Named, Runner, make_job, multi30k, named, random_pairs
from product_rates import largest_rate, step_products, total_flops, weighted_rate
from report import command_line, hardware, print_table, summary

PEERS_WITH_ENVIRONMENT = ("transformers", "eole", "joeynmt")
# Each toolkit in both precisions; where plain attention was seen to be faster than the fused one, both.
ENGINES = (
    "ours-bf16", "ours-fp32", "transformers-fp32+plain", "transformers-bf16", "transformers-bf16+plain",
    "torch-nn-fp32+plain", "torch-nn-bf16", "torch-nn-bf16+plain", "eole-fp32", "eole-bf16", "joeynmt-fp32",
)  # fmt: skip
CHECK_TOLERANCE = {"float32": 2e-5, "bfloat16": 1e-3}


def check_all(engines: list[Named], runner: Runner) -> dict[str, Any]:
    """Whether each engine computes our losses: before and after a few updates without dropout.

    An engine in bf16 must agree in float32 as well, where a mistake in its set-up is not hidden by rounding.
    """
    orders = sorted({engine.norm_order for engine in engines})
    references = {order: runner.check(named("ours-fp32"), order) for order in orders}
    checks: dict[str, Any] = {}
    checked = list(dict.fromkeys(engine for timed in engines for engine in (timed.in_float32(), timed)))
    at_a_time = 2 if runner.job["device"] == "cuda" else 1  # most of their time on a GPU is that of their start
    with ThreadPoolExecutor(at_a_time) as pool:
        results = pool.map(lambda engine: None if engine.name == "ours-fp32" else runner.check(engine), checked)
    for engine, own_result in zip(checked, results, strict=True):
        reference = references[engine.norm_order]
        result = own_result or reference
        checks[engine.name] = compared(result, reference, CHECK_TOLERANCE[engine.precision])
        print(f"check {engine.name}: {json.dumps(checks[engine.name])}", flush=True)
    for engine in engines:
        checks[engine.name]["agrees_in_float32"] = checks[engine.in_float32().name]["agrees"]
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


def time_all(
    engines: list[Named], runner: Runner, rounds: int, products: Any, device: torch.device, *, at_once: bool
) -> list[Any]:
    """Each round: the machine's product rates, then every engine once, one after another or update by update."""
    results = []
    for number in range(rounds):
        rates = {
            precision: weighted_rate(products, getattr(torch, precision), device) for precision in PRECISIONS.values()
        }
        largest = {"peak_rate": largest_rate(torch.bfloat16, device)} if device.type == "cuda" else {}
        # Each round begins with another engine, so that none always follows the same one.
        order = engines[number % len(engines) :] + engines[: number % len(engines)]
        timings = {}
        for beside in [order] if at_once else [[engine] for engine in order]:
            for engine, timing in zip(beside, runner.timed(beside, number + 1), strict=True):
                timings[engine.name] = timing
                keys = ("target_tokens_per_second", "steady_peak_mib", "losses", "error")
                shown = {key: timing[key] for key in keys if key in timing}
                print(f"round {number + 1} {engine.name}: {json.dumps(shown)}", flush=True)
        in_order = {engine.name: timings[engine.name] for engine in engines}
        results.append({"product_rates": rates, **largest, "engines": in_order})
    return results


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--engines", default=",".join(ENGINES), help="names, separated by commas")
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="the folder that setup.sh made")
    parser.add_argument(
        "--peer-python", action="append", default=[], metavar="TOOLKIT=PATH", help="another interpreter"
    )
    parser.add_argument("--batch", type=int, nargs=2, default=(64, 32), metavar=("PAIRS", "LENGTH"), help="base, big")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="timed updates; 24 for tiny, 5 for the others if not given")
    parser.add_argument(
        "--at-once", action="store_true", help="all engines in memory at a time, which compute in turn, an update each"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    """Checks and times all engines and prints the summary."""
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the engine that is running, too
    engines = [named(name) for name in arguments.engines.split(",")]
    shape, device = SHAPES[arguments.shape], torch.device(arguments.device)
    steps = arguments.steps or shape.steps
    pythons = {toolkit: str(arguments.peers / toolkit / "bin/python") for toolkit in PEERS_WITH_ENVIRONMENT}
    pythons |= dict(entry.split("=", 1) for entry in arguments.peer_python)
    torch.set_num_threads(arguments.threads)
    n_batches = shape.warm_steps + steps
    if arguments.shape == "tiny":
        batches, vocabulary = multi30k(10_000, n_batches)
    else:
        batches, vocabulary = random_pairs(32_000, n_batches, *arguments.batch), 32_000
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
        rounds = time_all(engines, runner, arguments.rounds, products, device, at_once=arguments.at_once)
    result = {
        "command": command_line(),
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
