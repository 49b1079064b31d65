"""Compiles the Triton kernels for a Hopper GPU, which need not be present, and prints their names.

Usage: FILE fp32|bf16
"""

import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from transformer.kernels import triton_kernels

P = f"*{sys.argv[1]}"
FLOATS = "*fp32"
KERNELS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "_self_attention_step": (
        {"joint": P, "keys": P, "values": P, "cache_indirection": "*i32", "positions": "*i64", "out": P,
         "scale": "fp32",
         "by_row": "i32", "by_head": "i32", "by_position": "i32", "held": "i32"},
        {"H": 8, "E": 64, "BLOCK_POSITIONS": triton_kernels.BLOCK_POSITIONS, "IS_INDIRECT": True},
    ),
    "_cross_attention_step": (
        {"queries": P, "keys": P, "values": P, "mask": "*i1", "out": P, "scale": "fp32", "length": "i32",
         "by_sentence": "i32", "by_head": "i32", "by_position": "i32"},
        {"H": 8, "E": 64, "WIDTH": 4, "BLOCK_HYPOTHESES": triton_kernels.BLOCK_HYPOTHESES,
         "BLOCK_POSITIONS": triton_kernels.BLOCK_POSITIONS},
    ),
    "_add_norm": (
        {"x": P, "y": P, "alpha": P, "beta": P, "total": P, "out": P, "eps": "fp32"},
        {"D": 512, "PADDED": 512, "HAS_RESIDUAL": True, "STORES_SUM": True},
    ),
    "_block_maxima": (
        {"logits": P, "forbidden": "*i1", "maxima": FLOATS, "sums": FLOATS, "V": "i32"},
        {"BLOCK_TOKENS": triton_kernels.BLOCK_TOKENS, "HAS_FORBIDDEN": True},
    ),
    "_top_k_of_row": (
        {"logits": P, "forbidden": "*i1", "maxima": FLOATS, "sums": FLOATS, "log_p": FLOATS, "chosen": "*i64",
         "V": "i32"},
        {"N_BLOCKS": 32, "PADDED": 32, "K": 8, "BLOCK_TOKENS": triton_kernels.BLOCK_TOKENS, "HAS_FORBIDDEN": True},
    ),
    "_smoothed_gradient": (
        {"logits": P, "labels": "*i64", "losses": FLOATS, "V": "i32", "epsilon": "fp32"},
        {"BLOCK_LOGITS": triton_kernels.BLOCK_LOGITS},
    ),
}  # fmt: skip
"""Types of the arguments and values of the constants of each kernel."""

for name, (argument_types, constants) in KERNELS.items():
    kernel: Any = getattr(triton_kernels, name)
    signature = {
        argument: "constexpr" if argument in constants else argument_types[argument] for argument in kernel.arg_names
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    assert "ptx" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm
    print(name)
