"""Statistics of the rounds of `benchmarks/training/throughput.py`: spread, ratios, shares of the product rate."""

import json
import os
import platform
import re
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from jobs import PRECISIONS, Named

TRAINED_TOLERANCE = 5e-2


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
            "counts": all(
                (checks[engine.name]["agrees"], checks[engine.name]["agrees_in_float32"], *map(same_dropout, timings))
            ),
            "dropout_sites_of_the_paper": all(map(same_dropout, timings)),
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
        if all("peak_rate" in entry for entry in rounds):
            shares = [flops / s / entry["peak_rate"] for s, entry in zip(seconds, rounds, strict=True)]
            figures[engine.name]["share_of_peak"] = spread(shares)
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


def same_dropout(timing: dict[str, Any]) -> bool:
    """Whether as many elements were dropped as the paper's sites have; not counted in a compiled model."""
    return timing["dropout_elements"] in (None, timing["dropout_elements_of_the_paper"])


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


def command_line() -> str:
    """The command that runs, for its result; of a file by its whole path, the name alone."""
    program, *options = sys.argv
    shown = (re.sub(r"(?<![\w.])/(?:[^/\s,:=]+/)*([^/\s,:=]+)", r"\1", option) for option in options)
    path = Path(program).resolve().relative_to(Path(__file__).resolve().parents[2])
    return shlex.join(["python", str(path), *shown])


def hardware(device: torch.device) -> dict[str, Any]:
    """Describes the machine on which the figures were measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    facts = {"cpu": ", ".join(names), "cores": os.cpu_count(), "system": platform.platform()}
    return facts | ({"gpu": torch.cuda.get_device_name()} if device.type == "cuda" else {})


def write_result(path: Path | None, threads: int | None = None, **figures: Any) -> None:
    """Writes figures as JSON, with the command, the machine and the versions. Without a path, nothing is written."""
    if path is None:
        return
    result = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")) | ({"threads": threads} if threads else {}),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result | figures, indent=2) + "\n")
