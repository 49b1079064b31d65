"""Residual addition and layer normalization in one pass over memory."""

from typing import Final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from transformer.kernels.library import compiled_library, library, threads_for

OPERATIONS_PER_ELEMENT: Final = 8
"""Approximate number of operations of a layer normalization per element, as in kernels.h."""


def add_norm(
    x: Float[Tensor, "*rows D"],
    y: Float[Tensor, "*rows D"] | None,
    alpha: Float[Tensor, " D"],
    beta: Float[Tensor, " D"],
    eps: float,
) -> Float[Tensor, "*rows D"]:
    """Computes LayerNorm(x + y), or LayerNorm(x) if y is None.

    Raises:
        ValueError: The parameters do not have the width of the rows.

    Source: Ba et al. 2016, Eq. 3 and 4.
    """
    compiled = library()
    if compiled is None:
        return F.layer_norm(x if y is None else x + y, alpha.shape, alpha, beta, eps)
    if alpha.shape != x.shape[-1:] or beta.shape != x.shape[-1:]:
        raise ValueError(
            f"alpha={tuple(alpha.shape)} and beta={tuple(beta.shape)} do not match rows of {x.size(-1)}; "
            "pass parameters of that width"
        )
    x = x.float().contiguous()
    out = torch.empty(x.shape, dtype=torch.float32, device="cpu")
    other = None if y is None else y.float().contiguous()
    compiled.transformer_add_norm(
        x.data_ptr(), None if other is None else other.data_ptr(),
        alpha.data_ptr(), beta.data_ptr(), eps,
        x.numel() // x.size(-1), x.size(-1), out.data_ptr(), threads_for(OPERATIONS_PER_ELEMENT * x.numel()),
    )  # fmt: skip
    return out


def supports_dropout_width(width: int) -> bool:
    """Whether `dropout_add_norm` supports rows of this width: a multiple of the random numbers drawn at a time."""
    compiled = library()
    return compiled is not None and width % compiled.transformer_drawn_at_a_time() == 0


def dropout_add_norm(
    x: Float[Tensor, "*rows D"],
    y: Float[Tensor, "*rows D"],
    alpha: Float[Tensor, " D"],
    beta: Float[Tensor, " D"],
    eps: float,
    levels: int,
    seed: int,
    bf16_copy: Float[Tensor, "*rows D"] | None = None,
) -> tuple[Float[Tensor, "*rows D"], Float[Tensor, "*rows D"], Float[Tensor, "*rows 2"]]:
    """Computes LayerNorm(x + dropout(y)).

    Args:
        x: Residual stream, float32, of a width accepted by `supports_dropout_width`.
        y: Output of the sub-layer, float32 or bfloat16.
        alpha: Gain, float32.
        beta: Bias, float32.
        eps: Constant added to the variance.
        levels: Dropout probability of y, in units of 1/65536.
        seed: Seed of the dropout mask.
        bf16_copy: Contiguous bfloat16 tensor to which the result is written as well.

    Returns:
        The result, the sums x + dropout(y), and the statistics of each row for the backward pass.

    Source: Ba et al. 2016, Eq. 3 and 4. The dropout mask is that of `elementwise.drop_out`.
    """
    compiled, width = compiled_library(), x.size(-1)
    x, y = x.contiguous(), y.contiguous()
    out, sums = torch.empty_like(x), torch.empty_like(x)
    statistics = torch.empty(*x.shape[:-1], 2, dtype=torch.float32, device="cpu")
    compiled.transformer_add_dropped_norm(
        x.data_ptr(), y.data_ptr(), y.dtype == torch.bfloat16, alpha.data_ptr(), beta.data_ptr(), eps, levels,
        seed % 2**64, x.numel() // width, width, sums.data_ptr(), statistics.data_ptr(), out.data_ptr(),
        None if bf16_copy is None else bf16_copy.data_ptr(), threads_for(OPERATIONS_PER_ELEMENT * x.numel()),
    )  # fmt: skip
    return out, sums, statistics


def dropout_add_norm_backward(
    d_out: Float[Tensor, "*rows D"],
    sums: Float[Tensor, "*rows D"],
    statistics: Float[Tensor, "*rows 2"],
    alpha: Float[Tensor, " D"],
    y_dtype: torch.dtype,
    levels: int,
    seed: int,
) -> tuple[Float[Tensor, "*rows D"], Float[Tensor, "*rows D"], Float[Tensor, " D"], Float[Tensor, " D"]]:
    """Computes the gradients of x, y, alpha and beta of `dropout_add_norm` from the gradient of its result."""
    compiled, width = compiled_library(), sums.size(-1)
    d_out = d_out.contiguous()
    d_x, d_y = torch.empty_like(sums), torch.empty_like(sums, dtype=y_dtype)
    d_alpha, d_beta = torch.empty_like(alpha), torch.empty_like(alpha)
    compiled.transformer_add_dropped_norm_gradient(
        d_out.data_ptr(), sums.data_ptr(), statistics.data_ptr(), alpha.data_ptr(), levels, seed % 2**64,
        d_out.numel() // width, width, d_x.data_ptr(), d_y.data_ptr(), y_dtype == torch.bfloat16, d_alpha.data_ptr(),
        d_beta.data_ptr(), threads_for(OPERATIONS_PER_ELEMENT * d_out.numel()),
    )  # fmt: skip
    return d_x, d_y, d_alpha, d_beta
