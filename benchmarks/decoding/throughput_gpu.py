"""Translations per second on a GPU compared with transformers: same weights, same token ids, one process, in turn.

Models have random weights in the paper's base and big sizes, V 32,000; sentences have 28 source tokens and exactly 32
target tokens, greedy and beam 4, in batches of 1 to 256 sentences. Both engines run in bf16, in turn, after a warm-up;
every round covers all points. transformers runs as `generate` does by default and, with --static, once more with a
static cache and the forward pass that `generate` then compiles. First both run in float32: a timing counts only if they
generate the same tokens on 99 % of the lines there.

"steps" is the time of a step by formula: the weights of the decoder, and keys and values, read once at the rate of a
copy measured in the same run, or the products at the rate of a large one, whichever is longer.

Usage: python benchmarks/decoding/throughput_gpu.py [--sizes base,big] [--batches 1,8,64,256] [--rounds 3] [--static]
       [--device cuda] [--out FILE]
"""

import argparse
import gc
import json
import platform
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from transformer import build_transformer

sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
from report import command_line, hardware, spread

sys.path.insert(0, str(Path(__file__).parent / "engines"))
from decoder import Engine
from ours_gpu import Ours

HERE = Path(__file__).parent / "engines"
SIZES = {
    "base": {"N": 6, "d_model": 512, "d_ff": 2048, "h": 8},
    "big": {"N": 6, "d_model": 1024, "d_ff": 4096, "h": 16},
    "tiny": {"N": 1, "d_model": 32, "d_ff": 64, "h": 2},  # tries the program on a CPU
}
VOCABULARY, POSITIONS, SOURCE_TOKENS, TARGET_TOKENS = 32000, 512, 28, 32
LEAST_SENTENCES, AGREEMENT = 8, 0.99
BATCHES = "1,8,64,256"


def marian() -> type[Engine]:
    """The engine of transformers; its file imports another one of the same name."""
    outcome = spec_from_file_location("marian_engine", HERE / "with_transformers.py")
    assert outcome is not None
    assert outcome.loader is not None
    module = module_from_spec(outcome)
    outcome.loader.exec_module(module)
    return module.Marian


Marian: Any = marian()


def weights(name: str, path: Path) -> dict[str, Any]:
    """Writes a random model of the paper's wiring; its sizes."""
    torch.manual_seed(1)
    sizes = SIZES[name]
    model = build_transformer(
        VOCABULARY, VOCABULARY, POSITIONS, POSITIONS, norm_order="post", share_embeddings="all", **sizes
    )
    save_file({key: tensor.clone() for key, tensor in model.state_dict().items()}, path)
    return sizes | {"vocabulary": VOCABULARY, "positions": POSITIONS, "norm_order": "post"}


def sources(sentences: int) -> list[list[int]]:
    """Random ones."""
    generator = torch.Generator().manual_seed(2)
    shape = sentences, SOURCE_TOKENS - 1
    return [[*line, 2] for line in torch.randint(4, VOCABULARY, shape, generator=generator).tolist()]


def cases(batches: list[int]) -> list[dict[str, Any]]:
    """Greedy and beam 4."""
    common = {"fixed": True, "limit": TARGET_TOKENS, "by_tokens": False}
    return [{"beam": beam, "batch": batch, **common} for beam in (1, 4) for batch in batches]


def release() -> None:
    """Frees the memory of models that are no longer used."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def wait() -> None:
    """Waits until the GPU has done what was queued, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(engine: Engine, lines: list[list[int]], case: dict[str, Any]) -> tuple[float, list[list[int]]]:
    """Seconds, and the tokens."""
    wait()
    begun = time.perf_counter()
    tokens = engine.translate(lines, case)
    wait()
    return time.perf_counter() - begun, tokens


def rates(device: str) -> tuple[float, float]:
    """Bytes a second of a copy, read and written, and operations a second of a large product in bfloat16."""
    width, elements = (8192, 2**28) if device == "cuda" else (64, 2**12)
    x = torch.randn(elements, device=device, dtype=torch.bfloat16)
    a, b = (torch.randn(width, width, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = {}
    for name, call in (("copy", lambda: x.clone()), ("product", lambda: a @ b)):
        call()
        times = []
        for _ in range(7):
            wait()
            begun = time.perf_counter()
            call()
            wait()
            times.append(time.perf_counter() - begun)
        seconds[name] = statistics.median(times)
    return 2 * x.nbytes / seconds["copy"], 2 * width**3 / seconds["product"]


def seconds_of_steps(sizes: dict[str, Any], case: dict[str, Any], copied: float, multiplied: float) -> float:
    """Returns the seconds of the steps of a batch by formula."""
    N, D, F, V = (sizes[name] for name in ("N", "d_model", "d_ff", "vocabulary"))
    matrices, rows = N * (6 * D * D + 2 * D * F) + V * D, case["batch"] * case["beam"]
    seconds = 0.0
    for step in range(1, TARGET_TOKENS + 1):
        cached = 2 * N * D * (rows * step + case["batch"] * SOURCE_TOKENS)
        operations = 2 * rows * matrices + 4 * rows * N * D * (step + SOURCE_TOKENS)
        seconds += max(2 * (matrices + cached) / copied, operations / multiplied)
    return seconds


def compare(name: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The figures of a size."""
    path = folder / f"{name}.safetensors"
    sizes = weights(name, path)
    order = {
        "weights": str(path),
        "sizes": sizes,
        "device": arguments.device,
        "workers": 1,
        "threads": 8 if arguments.device == "cuda" else 1,
    }
    wanted = cases([int(batch) for batch in arguments.batches.split(",")])
    lines = sources(max(LEAST_SENTENCES, *(case["batch"] for case in wanted)))
    same = agreement(order, lines)
    print(f"{name}: the same lines in float32, beam 1 and 4: {same}", flush=True)
    engines: dict[str, Engine] = {
        "ours": Ours(order | {"precision": "bf16"}), "transformers": Marian(order | {"precision": "bf16"})
    }  # fmt: skip
    if arguments.static:
        engines["transformers, static and compiled"] = Marian(
            order | {"precision": "bf16", "options": {"cache_implementation": "static"}}
        )
    copied, multiplied = rates(arguments.device)
    seconds: dict[str, dict[str, list[float]]] = {}
    tokens: dict[tuple[str, str], list[list[int]]] = {}
    for number in range(arguments.rounds + 1):
        for case in wanted:
            point = f"beam {case['beam']}, batch {case['batch']}"
            batch_lines = lines[: max(LEAST_SENTENCES if case["batch"] < LEAST_SENTENCES else 0, case["batch"])]
            for engine in list(engines)[number % 2 :] + list(engines)[: number % 2]:
                taken, tokens[engine, point] = timed(engines[engine], batch_lines, case)
                if number:  # the first round warms up
                    seconds.setdefault(point, {}).setdefault(engine, []).append(taken / len(batch_lines))
        print(f"{name}, round {number}", {point: {k: f"{1 / v[-1]:.1f}/s" for k, v in by_engine.items()}
                                          for point, by_engine in seconds.items()}, flush=True)  # fmt: skip
    points = {}
    for (point, by_engine), case in zip(seconds.items(), wanted, strict=True):
        ours = by_engine["ours"]
        least = seconds_of_steps(sizes, case, copied, multiplied) / case["batch"]
        points[point] = {
            "sentences_per_second": {engine: spread([1 / s for s in values]) for engine, values in by_engine.items()},
            "ours_over": {engine: spread([theirs / mine for mine, theirs in zip(ours, values, strict=True)])
                          for engine, values in by_engine.items() if engine != "ours"},
            "same_lines_in_bf16": share(tokens["ours", point], tokens["transformers", point]),
            "share_of_steps_by_formula": least / statistics.median(ours),
            "milliseconds_a_step": 1e3 * statistics.median(ours) * case["batch"] / TARGET_TOKENS,
        }  # fmt: skip
    return {
        "sizes": sizes, "same_lines_in_float32": same, "counts": min(same.values()) >= AGREEMENT,
        "copied_bytes_per_second": copied, "operations_per_second": multiplied, "points": points,
    }  # fmt: skip


def share(ours: list[list[int]], theirs: list[list[int]]) -> float:
    """Share of lines with the same tokens."""
    return sum(mine == other for mine, other in zip(ours, theirs, strict=True)) / len(ours)


def agreement(order: dict[str, Any], lines: list[list[int]]) -> dict[str, float]:
    """Share of lines on which both write the same in float32."""
    engines = [kind(order | {"precision": "float32"}) for kind in (Ours, Marian)]
    outcome = {}
    for beam in (1, 4):
        case = {"beam": beam, "batch": 64, "fixed": True, "limit": TARGET_TOKENS, "by_tokens": False}
        outcome[f"beam {beam}"] = share(*(engine.translate(lines[:128], case) for engine in engines))
    del engines
    release()
    return outcome


def main() -> None:
    """Prints the figures, and writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="base,big")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--batches", default=BATCHES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--static", action="store_true", help="transformers with a compiled step too")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "command": command_line(),
        "hardware": hardware(torch.device(arguments.device)),
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "transformers": version("transformers")},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.sizes.split(","):
            result[name] = compare(name, arguments, Path(folder))
            release()
    for name in arguments.sizes.split(","):
        for point, figures in result[name]["points"].items():
            print(name, point, json.dumps(figures))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
