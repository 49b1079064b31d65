"""Element-wise kernels and reductions for training."""

import ctypes

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.kernels.library import compiled_library, threads_for

COST = 16
"""Number of multiplications that take as long as one GELU, or as loading one element from memory."""


def gelu(
    x: Float[Tensor, "*shape"], *, tanh_approximation: bool, needs_derivatives: bool = False, in_place: bool = False
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"] | None]:
    """Computes GELU and, on request, its derivative, which shares most of the work.

    Args:
        x: Input accepted by `supports_tensors`.
        tanh_approximation: Whether the normal distribution is approximated with tanh.
        needs_derivatives: Whether the derivatives are returned for a backward pass.
        in_place: Whether the result overwrites x, which must be contiguous.

    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", Sec. 2.
    """
    compiled = compiled_library()
    x = x.contiguous()
    out, derivatives = x if in_place else torch.empty_like(x), torch.empty_like(x) if needs_derivatives else None
    compiled.transformer_gelu(
        x.data_ptr(), x.numel(), out.data_ptr(), None if derivatives is None else derivatives.data_ptr(),
        tanh_approximation, x.dtype == torch.bfloat16, threads_for(COST * x.numel()),
    )  # fmt: skip
    return out, derivatives


def drop_out(
    y: Float[Tensor, "*shape"],
    levels: int,
    seed: int,
    *,
    residual: Float[Tensor, "*shape"] | None = None,
    dtype: torch.dtype,
    in_place: bool = False,
) -> Float[Tensor, "*shape"]:
    """Computes dropout(y), or residual + dropout(y).

    Args:
        y: Input accepted by `supports_tensors`.
        levels: Dropout probability in units of 1/65536, less than 65536.
        seed: Seed of the dropout mask, which depends on it and on an element's index, not on the number of threads.
        residual: Tensor to add, with the dtype of the result.
        dtype: Dtype of the result, float32 or bfloat16.
        in_place: Whether the result overwrites y, which must be contiguous.
    """
    compiled = compiled_library()
    y, residual = y.contiguous(), None if residual is None else residual.contiguous()
    out = y if in_place else torch.empty(y.shape, dtype=dtype, device="cpu")
    compiled.transformer_dropout(
        None if residual is None else residual.data_ptr(), y.data_ptr(), y.numel(), out.data_ptr(),
        y.dtype == torch.bfloat16, dtype == torch.bfloat16, levels, seed % 2**64, threads_for(COST * y.numel()),
    )  # fmt: skip
    return out


def column_sums(x: Float[Tensor, "M N"]) -> Float[Tensor, " N"]:
    """Sums each column in float32, e.g. for the gradient of a bias.

    The input must pass `supports_tensors` and be contiguous along the last axis.
    """
    compiled = compiled_library()
    out = torch.empty(x.size(1), dtype=torch.float32, device="cpu")
    compiled.transformer_column_sums(
        x.data_ptr(), x.stride(0), *x.shape, out.data_ptr(), x.dtype == torch.bfloat16, threads_for(COST * x.numel())
    )
    return out


def sum_of_squares(*tensors: Float[Tensor, "..."]) -> float:
    """Sums the squares of all elements of float32 tensors that pass `supports_tensors`.

    The result does not depend on the number of threads.
    """
    compiled, n = compiled_library(), len(tensors)
    contiguous = [x.contiguous() for x in tensors]
    sizes = [x.numel() for x in contiguous]
    return compiled.transformer_sum_of_squares(
        (ctypes.c_void_p * n)(*(x.data_ptr() for x in contiguous)), (ctypes.c_long * n)(*sizes), n,
        threads_for(COST * sum(sizes)),
    )  # fmt: skip
