"""Finds the compiled kernels, and says why where there are none."""

import ctypes
import importlib.util
import os
from functools import cache
from typing import Final

import torch

POINTER, LONG, INT, FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_float
SEED = ctypes.c_uint64
VERSION: Final = 12
SIGNATURES: Final = {
    "transformer_product": (POINTER, POINTER, LONG, POINTER, INT),
    "transformer_matmul": (POINTER, POINTER, POINTER, POINTER, INT, LONG, LONG, LONG, LONG, INT, INT),
    "transformer_trained_attention": (POINTER, INT, INT),
    "transformer_cross_entropy": (POINTER, LONG, POINTER, LONG, LONG, FLOAT, FLOAT, INT, POINTER, INT),
    "transformer_gelu": (POINTER, LONG, POINTER, POINTER, INT, INT, INT),
    "transformer_drop_out": (POINTER, POINTER, LONG, POINTER, INT, INT, INT, SEED, INT),
    "transformer_sum_columns": (POINTER, LONG, LONG, LONG, POINTER, INT, INT),
    "transformer_best_of_product": (POINTER, POINTER, LONG, LONG, POINTER, POINTER, POINTER, INT),
    "transformer_lookup": (POINTER, POINTER, LONG, FLOAT, POINTER, INT),
    "transformer_round_rows": (POINTER, LONG, LONG, POINTER, POINTER, INT),
    "transformer_sum_rows": (POINTER, LONG, LONG, POINTER, INT),
    "transformer_attention": (POINTER, INT),
    "transformer_decoder_layer": (POINTER, POINTER, POINTER, POINTER, POINTER, LONG, INT),
    "transformer_remember": (POINTER, LONG, POINTER, LONG, LONG, LONG, LONG, LONG, LONG, POINTER, INT),
    "transformer_reorder": (POINTER, LONG, POINTER, LONG, LONG, LONG, LONG, LONG),
    "transformer_add_norm": (POINTER, POINTER, POINTER, POINTER, FLOAT, LONG, LONG, POINTER),
    "transformer_best_tokens": (POINTER, LONG, LONG, LONG, POINTER, POINTER, POINTER, INT),
}
SETTING: Final = "TRANSFORMER_KERNELS"
"""Environment variable: `off` computes everything with torch."""


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where torch has to do."""
    if why_not() is not None:
        return None
    compiled = ctypes.CDLL(_path())
    for name, arguments in SIGNATURES.items():
        function = getattr(compiled, name)
        function.argtypes, function.restype = arguments, None
    compiled.transformer_lookup.restype = compiled.transformer_cross_entropy.restype = ctypes.c_int
    return compiled


@cache
def why_not() -> str | None:
    """Why the compiled kernels are not used here; None where they are."""
    if os.environ.get(SETTING, "").lower() == "off":
        return f"{SETTING}=off"
    path = _path()
    if path is None:
        return "not compiled; install with a C++ compiler at hand"
    try:
        # OpenMP comes from torch, so that both use the same threads
        compiled = ctypes.CDLL(path)
        if compiled.transformer_kernels_version() != VERSION or not all(hasattr(compiled, name) for name in SIGNATURES):
            return "compiled from another version; install again"
        runs_here = compiled.transformer_kernels_run_here()
    except (OSError, AttributeError) as error:
        return f"cannot be loaded: {error}"
    return None if runs_here else "this processor lacks AVX-512 with VNNI and bfloat16"


def _path() -> str | None:
    specification = importlib.util.find_spec("transformer.kernels._compiled")
    return None if specification is None else specification.origin


def threads_for(operations: int) -> int:
    """How many threads a call with so many multiplications is worth."""
    return torch.get_num_threads() if operations >= ONE_THREAD_UP_TO else 1


ONE_THREAD_UP_TO: Final = 1 << 19
"""Multiplications that one thread finishes sooner than several could agree to share them."""
