"""Compiles the kernels for a Hopper GPU, which need not be there; prints their names. Usage: FILE fp32|bf16."""

import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from transformer.kernels import triton_kernels

P = f"*{sys.argv[1]}"
FLOATS = "*fp32"
KERNELS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "_attend_written": (
        {"joint": P, "keys": P, "values": P, "cache_indirection": "*i32", "positions": "*i64", "out": P,
         "scale": "fp32",
         "by_row": "i32", "by_head": "i32", "by_position": "i32", "held": "i32"},
        {"H": 8, "E": 64, "AT_ONCE": triton_kernels.AT_ONCE, "SHARED": True},
    ),
    "_attend_source": (
        {"queries": P, "keys": P, "values": P, "mask": "*i1", "out": P, "scale": "fp32", "length": "i32",
         "by_sentence": "i32", "by_head": "i32", "by_position": "i32"},
        {"H": 8, "E": 64, "WIDTH": 4, "TOGETHER": triton_kernels.TOGETHER, "AT_ONCE": triton_kernels.AT_ONCE},
    ),
    "_add_norm": (
        {"x": P, "y": P, "alpha": P, "beta": P, "total": P, "out": P, "eps": "fp32"},
        {"D": 512, "FILLED": 512, "ADDS": True, "KEEPS": True},
    ),
    "_top_of_part": (
        {"logits": P, "never": "*i1", "tops": FLOATS, "sums": FLOATS, "V": "i32"},
        {"PART": triton_kernels.PART, "FORBIDS": True},
    ),
    "_best_of_row": (
        {"logits": P, "never": "*i1", "tops": FLOATS, "sums": FLOATS, "log_p": FLOATS, "chosen": "*i64", "V": "i32"},
        {"PARTS": 32, "FILLED": 32, "K": 8, "PART": triton_kernels.PART, "FORBIDS": True},
    ),
}  # fmt: skip
"""The types of their arguments, and their constants."""

for name, (kinds, constants) in KERNELS.items():
    kernel: Any = getattr(triton_kernels, name)
    signature = {each: "constexpr" if each in constants else kinds[each] for each in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    assert "ptx" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm
    print(name)
