"""Roofline of a translation: operations and bytes by formula, divided by the rates measured on this machine."""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch

from transformer.kernels import PackedLinear, Precision, Weight
from transformer.runtime.allocator import retain_heap

BYTES = {"float32": 4, "bf16": 2, "int8": 1}
CACHED_BYTES = {"float32": 4, "bf16": 2, "int8": 2}
"""Bytes per number in the caches of keys and values."""


@dataclass(frozen=True)
class Rates:
    """What the machine does in one precision with all threads.

    Attributes:
        operations: multiplications and additions a second in the products of an encoder layer, 1,792 rows.
        bytes: a second, read from memory by products of one row with matrices too large for any cache.
    """

    operations: float
    bytes: float


def measure(precision: Precision) -> Rates:
    """The rates of the compiled products, which were compared with oneDNN's (`docs/experiments/kernels-avx512.md`)."""
    matrix, x = PackedLinear(Weight.from_tensor(torch.randn(2048, 512), precision)), torch.randn(1792, 512)
    operations = 2 * 1792 * 512 * 2048 / _seconds(lambda: matrix(x))
    large = [
        PackedLinear(Weight.from_tensor(torch.randn(32000, 512), precision)) for _ in range(8 // BYTES[precision] + 2)
    ]
    row = torch.randn(1, 512)
    seconds = _seconds(lambda: [multiply(row) for multiply in large])
    return Rates(operations, len(large) * 32000 * 512 * BYTES[precision] / seconds)


def rate_of_products(
    sizes: dict[str, int], precision: Precision, *, workers: int, threads: int, batch: int, beam: int, source: int,
    target: int,
) -> float:  # fmt: skip
    """Sentences a second of a translator that multiplies, ranks its tokens as it projects, and does nothing else.

    Each worker makes the products of a translation in their order, with the matrices of a whole model; no attention,
    no norms, no search, no caches.

    Args:
        sizes: N, d_model, d_ff and vocabulary.
        precision: of the weights.
        workers: at a time, each with a batch of its own; several have one thread each.
        threads: of a worker that is alone.
        batch: sentences of a worker.
        beam: hypotheses of each.
        source: tokens of each source, EOS counted.
        target: steps.
    """
    N, D, F, V = (sizes[name] for name in ("N", "d_model", "d_ff", "vocabulary"))
    network = [(F, D), (D, F)]
    encoder, decoder = [(3 * D, D), (D, D), *network], [(3 * D, D), (D, D), (D, D), (D, D), *network]

    def matrices(shapes: list[tuple[int, int]]) -> list[PackedLinear]:
        return [PackedLinear(Weight.from_tensor(torch.randn(shape), precision)) for shape in shapes]

    of_source, of_step = matrices(N * [*encoder, (2 * D, D)]), matrices(N * decoder)
    (projection,) = matrices([(V, D)])
    inputs = {(rows, width): torch.randn(rows, width) for rows in (batch * source, batch * beam) for width in (D, F)}

    def translate() -> None:
        for matrix in of_source:
            matrix(inputs[batch * source, matrix.inner])
        for _ in range(target):
            for matrix in of_step:
                matrix(inputs[batch * beam, matrix.inner])
            projection.top_k(inputs[batch * beam, D], 2 * beam)

    retain_heap()
    if workers == 1:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        seconds = _seconds(translate, 3)
        torch.set_num_threads(before)
        return batch / seconds
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), torch.set_num_threads, (1,)) as pool:
        global _translate
        _translate = translate
        return workers * batch / statistics.mean(pool.map(_translated, range(workers)))


_translate: Callable[[], object] = list


def _translated(_: int) -> float:
    return _seconds(_translate, 3)


def _seconds(call: Callable[[], object], times: int = 9) -> float:
    call()
    timings: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        timings.append(time.perf_counter() - begun)
    return statistics.median(timings)


def roof_seconds(
    sizes: dict[str, int], precision: Precision, rates: Rates, *, sentences: int, batch: int, beam: int, source: int,
    target: int, products_alone: bool = False,
) -> float:  # fmt: skip
    """Seconds for sentences of `source` tokens, `batch` at a time, to `target` tokens each.

    A phase (encoder, each decoder step) takes the longer of its operations and its bytes.

    Args:
        sizes: N, d_model, d_ff and vocabulary.
        precision: of the weights.
        rates: of the machine in that precision.
        sentences: how many in all.
        batch: of them at a time.
        beam: hypotheses of each.
        source: tokens of each source, EOS counted.
        target: steps.
        products_alone: count no attention and no bytes.
    """
    N, D, F, V = (sizes[name] for name in ("N", "d_model", "d_ff", "vocabulary"))
    encoder, decoder, cross = N * (4 * D * D + 2 * D * F), N * (6 * D * D + 2 * D * F) + V * D, N * 2 * D * D
    rows = batch * beam
    width = BYTES[precision]
    operations = 2.0 * batch * source * (encoder + cross)
    if not products_alone:
        operations += 4.0 * batch * N * source * source * D
    seconds = operations / rates.operations
    if not products_alone:
        seconds = max(seconds, (encoder + cross) * width / rates.bytes)
    for step in range(1, target + 1):
        products = 2.0 * rows * decoder / rates.operations
        if products_alone:
            seconds += products
            continue
        attention = 4.0 * rows * N * (step + source) * D / rates.operations
        cached = cached_bytes(sizes, precision, sentences=batch, positions=step + source)
        seconds += max(products + attention, (decoder * width + cached) / rates.bytes)
    return seconds * sentences / batch


def cached_bytes(sizes: dict[str, int], precision: Precision, *, sentences: int, positions: int) -> float:
    """Keys and values that a step reads at least: what the hypotheses of a sentence have in common counts once."""
    return 2.0 * sizes["N"] * sizes["d_model"] * sentences * positions * CACHED_BYTES[precision]
