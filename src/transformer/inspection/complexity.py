"""Measures what self-attention, recurrence and convolution cost on this machine, beside Table 1 of the paper."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor, nn

from transformer.blocks.attention import attention_weights
from transformer.errors import DataError

KERNEL: Final = 3
"""Number of positions that a convolution reads."""
MIN_SECONDS: Final = 0.02
"""Time that is measured at once."""
ROUNDS: Final = 5
TABLE: Final = {
    "self-attention": ("O(n² d)", "O(1)", "O(1)"),
    "recurrence": ("O(n d²)", "O(n)", "O(n)"),
    "convolution": ("O(k n d²)", "O(1)", "O(log_k n)"),
}
"""Complexity per layer, sequential operations and maximum path length (Vaswani et al. 2017, Table 1)."""


@dataclass(frozen=True)
class Cost:
    """Cost of one layer.

    Attributes:
        layer: Kind of the layer, a key of `TABLE`.
        n: Length of the sequence.
        d: Width.
        seconds: Median time of a forward pass.
        spread: Slowest divided by fastest round.
        memory: Bytes that the backward pass needs, without parameters.
        sequential: Number of operations of one layer that wait for each other.
        path: Number of layers or steps between the first and the last position.
    """

    layer: str
    n: int
    d: int
    seconds: float
    spread: float
    memory: int
    sequential: int
    path: int


def measure(
    lengths: Sequence[int] = (32, 64, 128, 256, 512),
    widths: Sequence[int] = (64, 128, 256),
    clock: Callable[[], float] = time.perf_counter,
) -> list[Cost]:
    """Measures every layer at every length and width, on one sequence and in float32.

    Self-attention is the formula itself, softmax(Q K^T / sqrt(d)) V, without projections and fused kernels.

    Args:
        lengths: Lengths of the sequence.
        widths: Widths.
        clock: Function that returns the time in seconds.
    """
    costs: list[Cost] = []
    for d in widths:
        makers = {"self-attention": _attention, "recurrence": _recurrence(d), "convolution": _convolution(d)}
        for layer, function in makers.items():
            for n in lengths:
                x = torch.randn(1, n, d, requires_grad=True)
                times = _measure_seconds(function, x, clock)
                sequential, path = _dependencies(layer, n)
                costs.append(
                    Cost(
                        layer, n, d, median(times), max(times) / min(times), _saved_bytes(function, x), sequential, path
                    )
                )
    return costs


def exponents(costs: Sequence[Cost], layer: str, quantity: str = "seconds") -> tuple[float, float]:
    """Fits quantity = c n^a d^b to the costs of a layer and returns a and b.

    The shorter half of the lengths is left out, where calls and not arithmetic take the time.
    """
    layer_costs = [cost for cost in costs if cost.layer == layer]
    lengths = sorted({cost.n for cost in layer_costs})
    layer_costs = [cost for cost in layer_costs if cost.n >= lengths[len(lengths) // 2]]
    rows = torch.tensor([[math.log(cost.n), math.log(cost.d), 1.0] for cost in layer_costs], dtype=torch.float64)
    values = torch.tensor([[math.log(asdict(cost)[quantity])] for cost in layer_costs], dtype=torch.float64)
    a, b, _ = torch.linalg.lstsq(rows, values).solution.flatten().tolist()
    return a, b


def as_json(costs: Sequence[Cost]) -> list[dict[str, object]]:
    """Returns costs as they are written to a file."""
    return [asdict(cost) for cost in costs]


def read_costs(path: Path | str) -> list[Cost]:
    """Reads costs from a JSON file with a list `costs`, as `benchmarks/training/complexity.py` writes it.

    Raises:
        DataError: The file is not such a file.
    """
    try:
        costs = [Cost(**cost) for cost in json.loads(Path(path).read_text(encoding="utf-8"))["costs"]]
        if {cost.layer for cost in costs} != {*TABLE}:
            raise ValueError("not every layer")
        if min(min(cost.n, cost.d, cost.seconds, cost.memory, cost.sequential, cost.path) for cost in costs) <= 0:
            raise ValueError("a cost that is not positive")
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise DataError(f"{path} has no list of costs of {', '.join(TABLE)}; give another file") from error
    return costs


def _attention(x: Tensor) -> Tensor:
    heads = x[:, None]
    return (attention_weights(heads, heads) @ heads)[:, 0]


def _recurrence(d: int) -> Callable[[Tensor], Tensor]:
    lstm = nn.LSTM(d, d, batch_first=True)
    return lambda x: lstm(x)[0]


def _convolution(d: int) -> Callable[[Tensor], Tensor]:
    convolution = nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2)
    return lambda x: convolution(x.transpose(1, 2)).transpose(1, 2)


def _measure_seconds(function: Callable[[Tensor], Tensor], x: Tensor, clock: Callable[[], float]) -> list[float]:
    """Returns the time of a call in several rounds of at least `MIN_SECONDS` each."""
    with torch.inference_mode():
        calls = 1
        while True:
            start = clock()
            for _ in range(calls):
                function(x)
            if clock() - start >= MIN_SECONDS:
                break
            calls *= 2
        times: list[float] = []
        for _ in range(ROUNDS):
            start = clock()
            for _ in range(calls):
                function(x)
            times.append((clock() - start) / calls)
        return times


def _saved_bytes(function: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """Returns the bytes of the tensors that a forward pass keeps for the backward pass."""
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter):
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        function(x)
    return sum(sizes.values())


@cache
def _dependencies(layer: str, n: int) -> tuple[int, int]:
    """Measures the operations in sequence, and the layers or steps until the last position depends on the first.

    The former is the depth of the autograd graph of one layer. The graph shows `nn.LSTM` as a single operation, so the
    depth is that of `nn.LSTMCell` applied n times, which has n steps from the first to the last position by definition.
    For the other layers, gradients show how many must be stacked; convolutions are dilated, so that layer i reads every
    k^i-th position.
    """
    if layer == "recurrence":
        cell, x = nn.LSTMCell(1, 1), torch.ones(n, 1, 1, requires_grad=True)
        state = torch.zeros(1, 1), torch.zeros(1, 1)
        for position in range(n):
            state = cell(x[position], state)
        return _graph_depth(state[0]), n
    x = torch.ones(1, 1, n, requires_grad=True)
    y, layers, sequential = x, 0, 0
    while True:
        if layer == "self-attention":
            y = _attention(y.transpose(1, 2)).transpose(1, 2)
        else:
            dilation = KERNEL**layers
            kernel = torch.ones(1, 1, KERNEL)
            y = nn.functional.conv1d(nn.functional.pad(y, ((KERNEL - 1) * dilation, 0)), kernel, dilation=dilation)
        layers += 1
        sequential = sequential or _graph_depth(y)
        (gradient,) = torch.autograd.grad(y[0, 0, -1], x, retain_graph=True)
        if gradient[0, 0, 0] != 0:
            return sequential, layers


def _graph_depth(output: Tensor) -> int:
    """Returns the depth of the autograd graph of `output`: the operations in its longest chain."""
    depths: dict[Any, int] = {}
    pending: list[Any] = [output.grad_fn]
    while pending:
        node = pending[-1]
        earlier = [reader for reader, _ in node.next_functions if reader is not None and reader.next_functions]
        if missing := [previous for previous in earlier if previous not in depths]:
            pending.extend(missing)
        else:
            depths[pending.pop()] = 1 + max((depths[previous] for previous in earlier), default=0)
    return depths[output.grad_fn]
