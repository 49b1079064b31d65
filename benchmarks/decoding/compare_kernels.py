"""Speed of products with packed int8 weights: builds of the compiled kernels, called in turn, each over the first one.

On a machine that others share, the rate of a product changes by half from second to second. Calls of a millisecond, in
turn within one process, and the median of the ratios of neighbours tell a difference of two percent all the same. The
outputs must be equal to the last bit.

Usage: python benchmarks/decoding/compare_kernels.py BEFORE/_avx2.so src/transformer/kernels/_avx2.so [--threads 1]
           [--out FILE]
"""

import argparse
import ctypes
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Final

import torch

from transformer.kernels.packed_linear import PackedLinear, Weight

sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
from report import spread, write_result

SHAPES: Final = ((192, 576), (768, 192), (192, 8000), (512, 2048), (2048, 512))
"""Inputs and outputs of layers of the small and the base model."""
ROWS: Final = (1, 4, 16, 64, 256)
OPERATIONS: Final = 20_000_000
"""Multiplications of a call that is timed."""
CALLS: Final = 41


def measure(libraries: list[ctypes.CDLL], inner: int, columns: int, x: torch.Tensor, threads: int) -> dict[str, Any]:
    """Returns billions of multiplications a second with the first library, and the speed of the others over it."""
    rows = len(x)
    weight = PackedLinear(Weight.from_tensor(torch.randn(columns, inner), "int8"))
    repetitions = max(1, OPERATIONS // (rows * inner * columns))
    times: list[list[float]] = [[] for _ in libraries]
    outputs: list[torch.Tensor] = []
    for call in range(CALLS):
        order = list(enumerate(libraries))
        for index, library in order if call % 2 else reversed(order):
            y = torch.empty(rows, columns)
            begun = time.perf_counter()
            for _ in range(repetitions):
                library.transformer_packed_linear(weight.address, x.data_ptr(), rows, y.data_ptr(), threads)
            times[index].append((time.perf_counter() - begun) / repetitions)
            outputs = [*outputs[-1:], y]
            if not torch.equal(outputs[0], y):
                raise SystemExit(f"the libraries differ: {inner} inputs, {columns} outputs, {rows} rows")
    first = times[0]
    return {
        "inner": inner, "columns": columns, "rows": rows,
        "giga_multiplications_per_second": rows * inner * columns / statistics.median(first) / 1e9,
        "over_the_first": [
            statistics.median(a / b for a, b in zip(first, other, strict=True)) for other in times[1:]
        ],
    }  # fmt: skip


def main() -> None:
    """Measures all shapes and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", type=Path, nargs="+", help="builds for the same instructions; first the reference")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    libraries = [ctypes.CDLL(str(path.resolve())) for path in arguments.libraries]
    for library in libraries:
        pointer, long = ctypes.c_void_p, ctypes.c_long
        library.transformer_packed_linear.argtypes = [pointer, pointer, long, pointer, ctypes.c_int]
        library.transformer_packed_linear.restype = None
    figures = []
    for inner, columns in SHAPES:
        for rows in ROWS:
            x = torch.randn(rows, inner)
            for kind, inputs in (("any", x), ("not negative", x.relu())):
                figure = {"inputs": kind} | measure(libraries, inner, columns, inputs, arguments.threads)
                figures.append(figure)
                print(json.dumps(figure), flush=True)
    summary = {
        kind: [
            spread([figure["over_the_first"][other] for figure in figures if figure["inputs"] == kind])
            for other in range(len(libraries) - 1)
        ]
        for kind in ("any", "not negative")
    }
    print(json.dumps(summary))
    write_result(arguments.out, threads=arguments.threads, over_the_first=summary, figures=figures)


if __name__ == "__main__":
    main()
