"""Finds the compiled kernels, and says why where there are none."""

import ctypes
import importlib.util
import os
import warnings
from functools import cache
from types import ModuleType
from typing import Final

import torch

from transformer.errors import ConfigError

POINTER, LONG, INT, FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_float
SEED = ctypes.c_uint64
VERSION: Final = 22
SIGNATURES: Final = {
    "transformer_product": (POINTER, POINTER, LONG, POINTER, INT),
    "transformer_rounded_product": (POINTER, POINTER, INT, LONG, POINTER, INT, INT),
    "transformer_matmul": (POINTER, POINTER, POINTER, POINTER, INT, LONG, LONG, LONG, LONG, INT, INT),
    "transformer_trained_attention": (POINTER, INT, INT),
    "transformer_cross_entropy": (POINTER, LONG, POINTER, LONG, LONG, FLOAT, FLOAT, INT, POINTER, INT),
    "transformer_gelu": (POINTER, LONG, POINTER, POINTER, INT, INT, INT),
    "transformer_drop_out": (POINTER, POINTER, LONG, POINTER, INT, INT, INT, SEED, INT),
    "transformer_sum_columns": (POINTER, LONG, LONG, LONG, POINTER, INT, INT),
    "transformer_sum_of_squares": (POINTER, POINTER, LONG, INT),
    "transformer_best_of_product": (POINTER, POINTER, LONG, LONG, POINTER, POINTER, POINTER, INT),
    "transformer_best_of_lists": (
        POINTER, POINTER, POINTER, POINTER, LONG, POINTER, LONG, LONG, POINTER, POINTER, POINTER, INT,
    ),
    "transformer_lookup": (POINTER, POINTER, LONG, FLOAT, POINTER, INT),
    "transformer_round_rows": (POINTER, LONG, LONG, POINTER, POINTER, INT),
    "transformer_sum_rows": (POINTER, LONG, LONG, POINTER, INT),
    "transformer_attention": (POINTER, INT),
    "transformer_decoder_layer": (POINTER, POINTER, POINTER, POINTER, POINTER, LONG, INT),
    "transformer_remember": (POINTER, LONG, POINTER, LONG, LONG, LONG, LONG, LONG, LONG, POINTER, INT),
    "transformer_reorder": (POINTER, LONG, POINTER, LONG, LONG, LONG, LONG, LONG),
    "transformer_add_norm": (POINTER, POINTER, POINTER, POINTER, FLOAT, LONG, LONG, POINTER, INT),
    "transformer_add_dropped_norm": (
        POINTER, POINTER, INT, POINTER, POINTER, FLOAT, INT, SEED, LONG, LONG, POINTER, POINTER, POINTER, POINTER, INT,
    ),
    "transformer_add_dropped_norm_gradient": (
        POINTER, POINTER, POINTER, POINTER, INT, SEED, LONG, LONG, POINTER, POINTER, INT, POINTER, POINTER, INT,
    ),
    "transformer_best_tokens": (POINTER, LONG, LONG, LONG, POINTER, POINTER, POINTER, INT),
}  # fmt: skip
SETTING: Final = "TRANSFORMER_KERNELS"
"""Environment variable: `off` computes everything with torch, a kind of processor takes the kernels for it alone."""
KINDS: Final = {
    "amx": "AMX for bfloat16, int8 and large products of float32 beside AVX-512",
    "avx512": "AVX-512 with VNNI and bfloat16",
    "avx2": "AVX2 with FMA",
}
"""Of processors, the fastest first: there are kernels for each, and those that run here are taken."""
MODULES: Final = {"amx": "_avx512", "avx512": "_avx512", "avx2": "_avx2"}
"""What is compiled for each; with AMX, other instructions of the same module multiply."""
INSTRUCTIONS: Final = {"amx": "amx_bf16", "avx512": "avx512_bf16", "avx2": "avx2"}
"""Torch's name for what a processor of the kind has: where kernels for it are missing, those of another are told of."""


@cache
def for_gpus() -> ModuleType | None:
    """The kernels for GPUs, or None where Triton is not installed, which torch brings for them, or all are off.

    Triton needs a C compiler and knows no old GPUs: where it fails, that is told once, and torch computes.
    """
    if os.environ.get(SETTING) == "off" or importlib.util.find_spec("triton") is None:
        return None
    try:
        from transformer.kernels import triton_kernels  # loads triton

        triton_kernels.best_tokens(torch.zeros(1, 2, device="cuda"), 1)
    except Exception as error:
        warnings.warn(f"without kernels for GPUs, which makes them slower: {str(error)[:200]}", stacklevel=2)
        return None
    return triton_kernels


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where torch has to do."""
    return _found()[0]


def unavailable_reason() -> str | None:
    """Why the compiled kernels are not used here; None where they are."""
    return None if _found()[0] is not None else _found()[1]


def kind() -> str | None:
    """For which kind of processor the kernels in use are, one of `KINDS`; None where torch has to do."""
    return None if _found()[0] is None else _found()[1]


def rounds() -> bool:
    """Whether products of kernels in use take and write bfloat16."""
    return kind() in ("amx", "avx512")


@cache
def _found() -> tuple[ctypes.CDLL | None, str]:
    """The kernels and their kind, or None and why there are none."""
    wanted = os.environ.get(SETTING, "").lower()
    if wanted == "off":
        return None, f"{SETTING}=off"
    if wanted and wanted not in KINDS:
        raise ConfigError(f"{SETTING}={wanted!r} is unknown; choose one of off, {', '.join(KINDS)}, or leave it unset")
    reasons: list[str] = []
    broken: list[str] = []
    for name in [wanted] if wanted else KINDS:
        try:
            if (compiled := _load(name)) is not None:
                if broken:
                    warnings.warn(
                        f"kernels for {name} are used, since faster ones are not: {'; '.join(broken)}", stacklevel=3
                    )
                return compiled, name
            reasons.append(f"this processor lacks {KINDS[name]}")
        except (OSError, AttributeError) as error:
            has = torch.cpu.get_capabilities().get(INSTRUCTIONS.get(name, ""), False)
            (broken if has else reasons).append(f"{name}: {error}")
    return None, "; ".join(broken + reasons)


def _load(name: str) -> ctypes.CDLL | None:
    """The kernels for a kind of processor; None if this is another.

    Raises:
        OSError: there are none, they are of another version, or do not load.
        AttributeError: likewise.
    """
    specification = importlib.util.find_spec(f"transformer.kernels.{MODULES[name]}")
    if specification is None or specification.origin is None:
        raise OSError("not compiled, or before an update; install again with a C++ compiler at hand")
    compiled = ctypes.CDLL(specification.origin)  # OpenMP comes from torch, so that both use the same threads
    if compiled.transformer_kernels_version() != VERSION or not all(hasattr(compiled, each) for each in SIGNATURES):
        raise OSError("compiled from another version; install again")
    if not compiled.transformer_kernels_run_here():
        return None
    if name == "amx" and (reason := compiled.transformer_kernels_use_tiles()):
        if reason == 1:
            return None
        raise OSError("the compiler knew no AMX" if reason == 2 else "Linux gives this process no tiles")
    for each, arguments in SIGNATURES.items():
        function = getattr(compiled, each)
        function.argtypes, function.restype = arguments, None
    compiled.transformer_columns_of_a_strip.restype = compiled.transformer_drawn_at_a_time.restype = LONG
    compiled.transformer_sum_of_squares.restype = ctypes.c_double
    compiled.transformer_lookup.restype = compiled.transformer_cross_entropy.restype = ctypes.c_int
    return compiled


def threads_for(operations: int) -> int:
    """How many threads a call with so many multiplications is worth."""
    return torch.get_num_threads() if operations >= ONE_THREAD_UP_TO else 1


ONE_THREAD_UP_TO: Final = 1 << 19
"""Multiplications that one thread finishes sooner than several could agree to share them."""
