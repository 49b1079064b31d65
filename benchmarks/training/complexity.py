"""What self-attention, recurrence and convolution cost over length and width, beside Table 1 of the paper.

Each layer is measured several times, on one thread and in processor time, which other programs change least. Of the
times of a layer the least is kept. `transformer plot complexity FILE` draws the result.

The two matrix products and the softmax of self-attention are timed on their own at the greatest length, too. So is
self-attention that is restricted to a neighbourhood, by a mask and by computing the scores of the neighbours alone,
and additive attention beside dot-product attention.

Usage: python benchmarks/training/complexity.py --out FILE
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch
import torch.nn.functional as F
from report import command_line, hardware
from torch import Tensor

from transformer.blocks import attention_weights, neighbourhood_mask
from transformer.inspection.complexity import TABLE, as_json, exponents, measure


def attention_parts(n: int, d: int, rounds: int) -> dict[str, float]:
    """Returns the least processor time of the products and of the softmax of self-attention, in seconds."""
    x = torch.randn(1, 1, n, d)
    scores, weights = x @ x.mT / d**0.5, torch.full((1, 1, n, n), 1 / n)
    square, rows = torch.empty_like(scores), torch.empty_like(x)  # allocated once, since new memory costs time
    parts = {
        "products": lambda: (torch.matmul(x, x.mT, out=square), torch.matmul(weights, x, out=rows)),
        "softmax": lambda: torch.softmax(scores, dim=-1, out=square),
    }
    return least_times(parts, rounds)


def restricted_attention(n: int, d: int, r: int, rounds: int) -> dict[str, float]:
    """Returns the least processor time of self-attention over all positions and over r of them, in seconds."""
    x, mask = torch.randn(1, 1, n, d), neighbourhood_mask(n, r)

    def by_windows() -> Tensor:
        padded = F.pad(x[0, 0], (0, 0, r // 2, (r - 1) // 2))
        windows = padded.unfold(0, r, 1)  # n d r: the neighbours of each position
        scores = (x[0, 0, :, None] @ windows)[:, 0] / d**0.5
        positions = torch.arange(n)[:, None] + torch.arange(r) - r // 2
        scores = scores.masked_fill((positions < 0) | (positions >= n), -torch.inf)
        return (windows @ scores.softmax(dim=-1)[:, :, None])[None, None, :, :, 0]

    parts = {
        "all positions": lambda: attention_weights(x, x) @ x,
        "neighbourhood by a mask": lambda: attention_weights(x, x, mask) @ x,
        "neighbourhood by windows": by_windows,
    }
    torch.testing.assert_close(by_windows(), parts["neighbourhood by a mask"]())
    return least_times(parts, rounds)


def additive_attention(n: int, d: int, rounds: int) -> dict[str, float]:
    """Returns the least processor time of the weights of dot-product and of additive attention, in seconds."""
    queries, keys, vector = torch.randn(n, d), torch.randn(n, d), torch.randn(d)
    parts = {
        "dot product": lambda: (queries @ keys.T / d**0.5).softmax(dim=-1),
        "additive": lambda: ((queries[:, None] + keys).tanh() @ vector).softmax(dim=-1),
    }
    return least_times(parts, rounds)


def least_times(parts: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Returns the least processor time of each function, in seconds; they are called in turn."""
    least = dict.fromkeys(parts, float("inf"))
    with torch.inference_mode():
        for _ in range(10 * rounds):
            for name, compute in parts.items():
                start = time.process_time()
                compute()
                least[name] = min(least[name], time.process_time() - start)
    return least


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 128, 256, 512, 1024])
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rounds = [measure(arguments.lengths, arguments.widths, time.process_time) for _ in range(arguments.rounds)]
    costs = [
        replace(same[0], seconds=min(one.seconds for one in same),
                spread=max(one.seconds for one in same) / min(one.seconds for one in same))
        for same in zip(*rounds, strict=True)
    ]  # fmt: skip
    facts = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")) | {"threads": 1},
        "versions": {"transformer": version("transformer"), "torch": torch.__version__,
                     "python": platform.python_version()},
        "spread": f"{arguments.rounds} rounds: seconds (processor time) is the least, spread the greatest by it",
        "exponents": {layer: {"of all rounds": exponents(costs, layer), "paper": TABLE[layer],
                              "of each round": [exponents(one, layer) for one in rounds]} for layer in TABLE},
        "parts of self-attention": [{"n": max(arguments.lengths), "d": d,
                                     **attention_parts(max(arguments.lengths), d, arguments.rounds)}
                                    for d in arguments.widths],
        "restricted self-attention": [{"n": n, "d": 64, "r": 32, **restricted_attention(n, 64, 32, arguments.rounds)}
                                      for n in (256, 1024, 4096)],
        "additive attention": [{"n": n, "d": 64, **additive_attention(n, 64, arguments.rounds)}
                               for n in (64, 256, 1024)],
        "costs": as_json(costs),
    }  # fmt: skip
    arguments.out.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for layer in TABLE:
        print(layer, facts["exponents"][layer])
    for part in [*facts["parts of self-attention"], *facts["restricted self-attention"], *facts["additive attention"]]:
        print(part)


if __name__ == "__main__":
    main()
