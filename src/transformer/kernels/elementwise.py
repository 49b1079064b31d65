"""What training computes element by element."""

import ctypes

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.kernels.library import library, threads_for

COST = 16
"""Multiplications that take as long as a GELU, or as fetching an element from memory."""


def gelu(
    x: Float[Tensor, "*shape"], *, is_by_tanh: bool, wants_slopes: bool = False, is_in_place: bool = False
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"] | None]:
    """GELU of x and, where they are wanted, its slopes there, of which most of the work is the same.

    Args:
        x: what `multiplies` says the kernels take.
        is_by_tanh: approximate the normal distribution.
        wants_slopes: for the way back.
        is_in_place: x, whose elements lie side by side, becomes the result.

    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", Sec. 2.
    """
    compiled = library()
    assert compiled is not None
    x = x.contiguous()
    out, slopes = x if is_in_place else torch.empty_like(x), torch.empty_like(x) if wants_slopes else None
    compiled.transformer_gelu(
        x.data_ptr(), x.numel(), out.data_ptr(), None if slopes is None else slopes.data_ptr(), is_by_tanh,
        x.dtype == torch.bfloat16, threads_for(COST * x.numel()),
    )  # fmt: skip
    return out, slopes


def drop_out(
    y: Float[Tensor, "*shape"],
    levels: int,
    seed: int,
    *,
    onto: Float[Tensor, "*shape"] | None = None,
    dtype: torch.dtype,
    is_in_place: bool = False,
) -> Float[Tensor, "*shape"]:
    """What dropout leaves of y, scaled, and added to `onto`, which has the type of the result.

    Args:
        y: what `multiplies` says the kernels take.
        levels: 65536 p of the probability p that an element is dropped; below 65536.
        seed: what is drawn depends on it and on an element's place, not on threads.
        onto: what is added.
        dtype: of the result, float32 or bfloat16.
        is_in_place: y, whose elements lie side by side, becomes the result.
    """
    compiled = library()
    assert compiled is not None
    y, onto = y.contiguous(), None if onto is None else onto.contiguous()
    out = y if is_in_place else torch.empty(y.shape, dtype=dtype, device="cpu")
    compiled.transformer_drop_out(
        None if onto is None else onto.data_ptr(), y.data_ptr(), y.numel(), out.data_ptr(), y.dtype == torch.bfloat16,
        dtype == torch.bfloat16, levels, seed % 2**64, threads_for(COST * y.numel()),
    )  # fmt: skip
    return out


def sum_columns(x: Float[Tensor, "M N"]) -> Float[Tensor, " N"]:
    """The sum of each column in float32, for what `multiplies` says the kernels take; rows lie side by side."""
    compiled = library()
    assert compiled is not None
    out = torch.empty(x.size(1), dtype=torch.float32, device="cpu")
    compiled.transformer_sum_columns(
        x.data_ptr(), x.stride(0), *x.shape, out.data_ptr(), x.dtype == torch.bfloat16, threads_for(COST * x.numel())
    )
    return out


def sum_of_squares(*tensors: Float[Tensor, "..."]) -> float:
    """Of elements in float32, for what `multiplies` says the kernels take; the same for any number of threads."""
    compiled, n = library(), len(tensors)
    assert compiled is not None
    side_by_side = [x.contiguous() for x in tensors]
    sizes = [x.numel() for x in side_by_side]
    return compiled.transformer_sum_of_squares(
        (ctypes.c_void_p * n)(*(x.data_ptr() for x in side_by_side)), (ctypes.c_long * n)(*sizes), n,
        threads_for(COST * sum(sizes)),
    )  # fmt: skip
