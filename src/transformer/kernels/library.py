"""Loads the compiled kernels, or explains why they are unavailable."""

import ctypes
import importlib.util
import os
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

import torch

from transformer.errors import ConfigError

POINTER, LONG, INT, FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_float
SEED = ctypes.c_uint64
VERSION: Final = 26
SIGNATURES: Final = {
    "transformer_packed_linear": (POINTER, POINTER, LONG, POINTER, INT),
    "transformer_packed_linear_bf16": (POINTER, POINTER, INT, LONG, POINTER, INT, INT),
    "transformer_matmul": (POINTER, POINTER, POINTER, POINTER, INT, LONG, LONG, LONG, LONG, INT, INT),
    "transformer_training_attention": (POINTER, INT, INT),
    "transformer_cross_entropy": (POINTER, LONG, POINTER, LONG, LONG, FLOAT, FLOAT, INT, POINTER, INT),
    "transformer_gelu": (POINTER, LONG, POINTER, POINTER, INT, INT, INT),
    "transformer_dropout": (POINTER, POINTER, LONG, POINTER, INT, INT, INT, SEED, INT),
    "transformer_column_sums": (POINTER, LONG, LONG, LONG, POINTER, INT, INT),
    "transformer_sum_of_squares": (POINTER, POINTER, LONG, INT),
    "transformer_packed_linear_topk": (POINTER, POINTER, LONG, LONG, POINTER, POINTER, POINTER, INT),
    "transformer_embedding_lookup": (POINTER, POINTER, LONG, FLOAT, POINTER, INT),
    "transformer_quantize_rows": (POINTER, LONG, LONG, POINTER, POINTER, INT),
    "transformer_sum_int8_rows": (POINTER, LONG, LONG, POINTER, INT),
    "transformer_attention": (POINTER, INT),
    "transformer_encode": (POINTER, POINTER, LONG, POINTER, INT),
    "transformer_decoder_begin": (POINTER, POINTER, POINTER, LONG, INT, POINTER),
    "transformer_decoder_step": (POINTER, POINTER, LONG, POINTER, POINTER, INT),
    "transformer_decoder_reorder": (POINTER, POINTER, LONG, POINTER),
    "transformer_decoder_select": (POINTER, POINTER, POINTER, LONG, LONG, POINTER),
    "transformer_decoder_end": (POINTER,),
    "transformer_append_to_cache": (POINTER, LONG, POINTER, LONG, LONG, LONG, LONG, LONG, LONG, POINTER, POINTER, INT),
    "transformer_reorder_cache": (POINTER, LONG, POINTER, LONG, LONG, LONG, LONG, LONG),
    "transformer_beam_search_begin": (POINTER, POINTER, INT, POINTER),
    "transformer_beam_search_advance": (POINTER, LONG, INT, POINTER),
    "transformer_beam_search_end": (POINTER,),
    "transformer_add_norm": (POINTER, POINTER, POINTER, POINTER, FLOAT, LONG, LONG, POINTER, INT),
    "transformer_log_softmax_topk": (POINTER, LONG, LONG, LONG, POINTER, POINTER, POINTER, INT),
    "transformer_set_thread_affinity": (POINTER, LONG, INT),
}  # fmt: skip
ENVIRONMENT_VARIABLE: Final = "TRANSFORMER_KERNELS"
"""Environment variable that selects the kernels: `off` uses PyTorch alone, an instruction set only its kernels."""
INSTRUCTION_SETS: Final = {
    "amx": "AMX for bfloat16, int8 and large products of float32 beside AVX-512",
    "avx512": "AVX-512 with VNNI and bfloat16",
    "avx_vnni": "AVX2 with FMA and AVX-VNNI",
    "avx2": "AVX2 with FMA",
}
"""Instruction sets with kernels, fastest first. The first one that the processor supports is used."""
LIBRARIES: Final = {"amx": "_avx512.so", "avx512": "_avx512.so", "avx_vnni": "_avx_vnni.so", "avx2": "_avx2.so"}
"""Compiled library of each instruction set, beside this file. The AMX kernels are part of the one for AVX-512."""
TORCH_CAPABILITIES: Final = {"amx": "amx_bf16", "avx512": "avx512_bf16", "avx_vnni": "avx_vnni", "avx2": "avx2"}
"""PyTorch's name of the CPU capability behind each instruction set. If the processor has it but the kernels cannot be
loaded, a warning reports which slower kernels are used."""


@cache
def triton_module() -> ModuleType | None:
    """Returns the module of Triton kernels, or None if Triton is not installed or the kernels are switched off.

    PyTorch for GPUs installs Triton. Triton needs a C compiler and does not support old GPUs. If it fails, a warning
    reports this once, and PyTorch is used instead.
    """
    if os.environ.get(ENVIRONMENT_VARIABLE) == "off" or importlib.util.find_spec("triton") is None:
        return None
    try:
        from transformer.kernels import triton_kernels  # loads triton

        triton_kernels.best_tokens(torch.zeros(1, 2, device="cuda"), 1)
    except Exception as error:
        warnings.warn(f"Triton kernels are unavailable, which makes GPUs slower: {str(error)[:200]}", stacklevel=2)
        return None
    return triton_kernels


@cache
def library() -> ctypes.CDLL | None:
    """Returns the compiled kernels, or None if PyTorch is used instead."""
    return _load_library()[0]


def compiled_library() -> ctypes.CDLL:
    """Returns the compiled kernels, for operations that only they implement.

    Raises:
        RuntimeError: The kernels are unavailable.
    """
    compiled, reason = _load_library()
    if compiled is None:
        raise RuntimeError(f"the compiled kernels are unavailable: {reason}")
    return compiled


def unavailable_reason() -> str | None:
    """Explains why the compiled kernels are not used; None if they are."""
    return None if _load_library()[0] is not None else _load_library()[1]


def instruction_set() -> str | None:
    """Returns the instruction set of the kernels in use (a key of `INSTRUCTION_SETS`), or None without kernels."""
    return None if _load_library()[0] is None else _load_library()[1]


def supported_sets() -> list[str]:
    """Returns the instruction sets of kernels that this processor supports and that are compiled, fastest first."""
    supported: list[str] = []
    for name in INSTRUCTION_SETS:
        with suppress(OSError, AttributeError):
            if _load_for(name) is not None:
                supported.append(name)
    return supported


def supports_bf16() -> bool:
    """Whether the matrix products of the kernels in use accept and write bfloat16."""
    return instruction_set() in ("amx", "avx512")


@cache
def _load_library() -> tuple[ctypes.CDLL | None, str]:
    """Returns the kernels and their instruction set, or None and the reason why there are none."""
    wanted = os.environ.get(ENVIRONMENT_VARIABLE, "").lower()
    if wanted == "off":
        return None, f"{ENVIRONMENT_VARIABLE}=off"
    if wanted and wanted not in INSTRUCTION_SETS:
        raise ConfigError(
            f"{ENVIRONMENT_VARIABLE}={wanted!r} is unknown; "
            f"choose one of off, {', '.join(INSTRUCTION_SETS)}, or leave it unset"
        )
    reasons: list[str] = []
    broken: list[str] = []
    for name in [wanted] if wanted else INSTRUCTION_SETS:
        try:
            if (compiled := _load_for(name)) is not None:
                if broken:
                    warnings.warn(
                        f"using the {name} kernels because faster ones could not be loaded: {'; '.join(broken)}",
                        stacklevel=3,
                    )
                return compiled, name
            reasons.append(f"this processor lacks {INSTRUCTION_SETS[name]}")
        except (OSError, AttributeError) as error:
            is_capable = torch.cpu.get_capabilities().get(TORCH_CAPABILITIES.get(name, ""), False)
            (broken if is_capable else reasons).append(f"{name}: {error}")
    return None, "; ".join(broken + reasons)


def _load_for(name: str) -> ctypes.CDLL | None:
    """Loads the kernels for an instruction set; returns None if the processor does not support it.

    Raises:
        OSError: The kernels are missing, have another version, or cannot be loaded.
        AttributeError: The library lacks a function, so it has another version.
    """
    path = Path(__file__).with_name(LIBRARIES[name])
    if not path.exists():
        raise OSError("not compiled, or compiled before an update; reinstall with a C++ compiler available")
    compiled = ctypes.CDLL(str(path))  # OpenMP comes from torch, so that both use the same threads
    if compiled.transformer_kernels_version() != VERSION or not all(hasattr(compiled, symbol) for symbol in SIGNATURES):
        raise OSError("compiled from another version; reinstall")
    if not compiled.transformer_kernels_are_supported():
        return None
    if name == "amx" and (reason := compiled.transformer_kernels_enable_amx()):
        if reason == 1:
            return None
        raise OSError("the compiler did not support AMX" if reason == 2 else "Linux denied AMX tiles to this process")
    for symbol, arguments in SIGNATURES.items():
        function = getattr(compiled, symbol)
        function.argtypes, function.restype = arguments, None
    compiled.transformer_packed_column_block.restype = LONG
    compiled.transformer_sum_of_squares.restype = ctypes.c_double
    for name in (
        "embedding_lookup", "cross_entropy", "encode", "decoder_begin", "decoder_step", "decoder_reorder",
        "decoder_select", "beam_search_begin", "beam_search_advance",
    ):  # fmt: skip
        getattr(compiled, f"transformer_{name}").restype = ctypes.c_int
    return compiled


def threads_for(operations: int) -> int:
    """Returns the number of threads to use for a call with this many multiplications."""
    return torch.get_num_threads() if operations >= MIN_PARALLEL_OPERATIONS else 1


MIN_PARALLEL_OPERATIONS: Final = 1 << 19
"""Number of multiplications from which several threads are faster than one."""
