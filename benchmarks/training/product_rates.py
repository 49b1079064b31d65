"""Rate of the matrix products of a training step on this machine: an upper bound on the speed of any step.

For every linear layer of the model and both products of each attention, at the shape of a given batch, three products
are timed: forward Y = X W^T, and backward dX = dY W and dW = dY^T X. The rate is the sum of their FLOPs divided by the
sum of their times, each weighted by its count in a step. Causal attention is counted in full, the projection as one
product.

Usage: python benchmarks/training/product_rates.py [--batch PAIRS SOURCE TARGET] [--d-model 512 --d-ff 2048 --h 8 --N 6
       --vocabulary 32000] [--threads 2] [--device cpu]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

REPETITIONS, SECONDS = 5, 0.1


@dataclass(frozen=True)
class Product:
    """`count` products of (rows x inner) by (inner x columns), `batch` of them side by side in each.

    Attributes:
        name: what it is in the model.
        count: how often a forward pass makes it.
        batch: matrices multiplied by one call, each by its own; 1 for a linear layer.
        rows: tokens.
        inner: width of the input.
        columns: width of the output.
    """

    name: str
    count: int
    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """Number of floating-point operations, forward and backward: three products of 2 m n k each."""
        return 3 * 2 * self.count * self.batch * self.rows * self.inner * self.columns


def step_products(
    pairs: int, source: int, target: int, *, N: int, d_model: int, d_ff: int, h: int, vocabulary: int,
    scored: int | None = None,
) -> list[Product]:  # fmt: skip
    """The products of one training step of an encoder-decoder.

    Args:
        pairs: sentence pairs in the batch.
        source: padded length of the source.
        target: padded length of the target.
        N: layers a side.
        d_model: width of the model.
        d_ff: inner width of the feed-forward networks.
        h: heads.
        vocabulary: tokens to score.
        scored: positions that are projected to the vocabulary; all of the target if not given.
    """
    d_k, heads = d_model // h, pairs * h
    src, tgt = pairs * source, pairs * target
    scored = tgt if scored is None else scored
    return [
        Product("encoder attention, linear", 4 * N, 1, src, d_model, d_model),
        Product("encoder feed-forward, in", N, 1, src, d_model, d_ff),
        Product("encoder feed-forward, out", N, 1, src, d_ff, d_model),
        Product("decoder attention, linear on the target", 6 * N, 1, tgt, d_model, d_model),
        Product("decoder attention, linear on the source", 2 * N, 1, src, d_model, d_model),
        Product("decoder feed-forward, in", N, 1, tgt, d_model, d_ff),
        Product("decoder feed-forward, out", N, 1, tgt, d_ff, d_model),
        Product("projection", 1, 1, scored, d_model, vocabulary),
        Product("encoder attention, scores", N, heads, source, d_k, source),
        Product("encoder attention, values", N, heads, source, source, d_k),
        Product("decoder self-attention, scores", N, heads, target, d_k, target),
        Product("decoder self-attention, values", N, heads, target, target, d_k),
        Product("cross-attention, scores", N, heads, target, d_k, source),
        Product("cross-attention, values", N, heads, target, source, d_k),
    ]


def total_flops(products: list[Product]) -> int:
    """Sum of the FLOPs of all products, forward and backward."""
    return sum(product.flops for product in products)


def largest_rate(dtype: torch.dtype, device: torch.device) -> float:
    """FLOP/s of a product of two large square matrices, which a GPU computes at its highest rate."""
    large = Product("large", 1, 1, 8192, 8192, 8192)
    return large.flops / _seconds(large, dtype, device)


def weighted_rate(products: list[Product], dtype: torch.dtype, device: torch.device) -> dict[str, object]:
    """FLOP/s over all products of a step, and of each kind.

    Returns:
        `rate`: all FLOPs over all seconds; `seconds`: of all products of one step; `products`: the rate of each.
    """
    seconds = {product.name: product.count * _seconds(product, dtype, device) for product in products}
    rates = {product.name: product.flops / seconds[product.name] for product in products}
    total = sum(seconds.values())
    return {"rate": total_flops(products) / total, "seconds": total, "products": rates}


def _seconds(product: Product, dtype: torch.dtype, device: torch.device) -> float:
    """Returns the seconds of one forward product and the two backward ones."""
    side = () if product.batch == 1 else (product.batch,)
    shape = {"dtype": dtype, "device": device}
    x = torch.randn(*side, product.rows, product.inner, **shape)
    weight = torch.randn(*side, product.columns, product.inner, **shape)
    d_y = torch.randn(*side, product.rows, product.columns, **shape)
    # Results go to memory that is there: fresh pages for each would be timed with the product.
    y, d_x, d_weight = (torch.empty_like(like) for like in (d_y, x, weight))
    calls: list[Callable[[], Tensor]] = [
        lambda: torch.matmul(x, weight.mT, out=y),
        lambda: torch.matmul(d_y, weight, out=d_x),
        lambda: torch.matmul(d_y.mT, x, out=d_weight),
    ]
    return sum(_median_seconds(call, device) for call in calls)


def _median_seconds(call: Callable[[], Tensor], device: torch.device) -> float:
    """Returns the seconds of a call: the median over `REPETITIONS` of the mean over the calls within `SECONDS`."""
    once = _mean_seconds(call, 1, device)  # the first call prepares what later ones reuse
    once = _mean_seconds(call, 1, device)
    calls = max(1, round(SECONDS / max(once, 1e-7) / REPETITIONS))
    return statistics.median(_mean_seconds(call, calls, device) for _ in range(REPETITIONS))


def _mean_seconds(call: Callable[[], Tensor], calls: int, device: torch.device) -> float:
    _wait(device)
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    _wait(device)
    return (time.perf_counter() - begun) / calls


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Measures float32 and bf16 and prints both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs=3, default=(64, 32, 32), metavar=("PAIRS", "SOURCE", "TARGET"))
    sizes = {"N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "vocabulary": 32000}
    for name, size in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=size)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    products = step_products(*arguments.batch, **{name: getattr(arguments, name) for name in sizes})
    device = torch.device(arguments.device)
    rates = {str(dtype): weighted_rate(products, dtype, device) for dtype in (torch.float32, torch.bfloat16)}
    print(json.dumps({"flops": total_flops(products), **rates}, indent=2))


if __name__ == "__main__":
    main()
