"""Inputs, timers and result format shared by the engines of `benchmarks/families/throughput.py`."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

REPEATS = 3
WARM_UP_STEPS = 4
"""Training steps until the C library has found memory for all that a step needs."""
VOCABULARY = {"minilm": 30522, "gpt2": 50257}


def order_given() -> dict[str, Any]:
    """The order of this process."""
    order = json.loads(sys.argv[1])
    torch.set_num_threads(order["threads"])
    torch.manual_seed(0)
    return order


def texts(order: dict[str, Any]) -> list[str]:
    """The sentences to be embedded."""
    return json.loads((Path(order["folder"]) / "texts.json").read_text())


def prompts(order: dict[str, Any]) -> torch.Tensor:
    """Prompts of equal length: rows, tokens."""
    return torch.randint(1000, 40000, (order["rows"], order["prompt"]), generator=torch.Generator().manual_seed(2))


def images(order: dict[str, Any]) -> torch.Tensor:
    """Normalized images."""
    return torch.randn(order["rows"], 3, 224, 224, generator=torch.Generator().manual_seed(3))


def examples(order: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels of a training step."""
    draw = torch.Generator().manual_seed(4)
    if order["model"] == "vit":
        return images(order), torch.randint(0, 1000, (order["rows"],), generator=draw)
    size = VOCABULARY[order["model"]]
    tokens = torch.randint(1000, size, (order["rows"], order["length"] + (order["model"] == "gpt2")), generator=draw)
    return tokens, torch.randint(0, 2, (order["rows"],), generator=draw)


def best_of(runs: dict[Any, Callable[[], np.ndarray]], order: dict[str, Any], warm_up: int = 1) -> None:
    """Warms each way up, tries it once, then times the fastest; writes what it gave.

    An order with turns waits for a line before each, and tells the parent its seconds.
    """
    tried: dict[Any, float] = {}
    for name, run in runs.items():
        for _ in range(warm_up):
            run()
        tried[name] = timed(run)[0] if len(runs) > 1 else 0.0
    chosen = min(tried, key=lambda name: tried[name])
    outcomes: list[tuple[float, np.ndarray]] = []
    if order.get("turns"):
        print("ready", flush=True)
        for _ in sys.stdin:
            outcomes.append(timed(runs[chosen]))
            print(outcomes[-1][0], flush=True)
    outcomes = outcomes or [timed(runs[chosen]) for _ in range(REPEATS)]
    np.save(order["out"], outcomes[-1][1], allow_pickle=False)
    print(
        json.dumps({"seconds": sorted(seconds for seconds, _ in outcomes)[len(outcomes) // 2], "chosen": str(chosen)})
    )


def timed(run: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """The seconds of a run, and what it gave."""
    started = time.perf_counter()
    output = run()
    return time.perf_counter() - started, output
