"""The sum of a residual connection and its norm in one pass over memory."""

from typing import Final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from transformer.kernels.library import library, threads_for

OPERATIONS_OF_A_NORM: Final = 8
"""For each number, about; as in kernels.h."""


def add_norm(
    x: Float[Tensor, "*rows D"],
    y: Float[Tensor, "*rows D"] | None,
    alpha: Float[Tensor, " D"],
    beta: Float[Tensor, " D"],
    eps: float,
) -> Float[Tensor, "*rows D"]:
    """LayerNorm(x + y), or of x alone.

    Source: Ba et al. 2016, Eq. 3 and 4.
    """
    compiled = library()
    if compiled is None:
        return F.layer_norm(x if y is None else x + y, alpha.shape, alpha, beta, eps)
    if alpha.shape != x.shape[-1:] or beta.shape != x.shape[-1:]:
        raise ValueError(f"gains of {tuple(alpha.shape)} and {tuple(beta.shape)} do not go with rows of {x.size(-1)}")
    x = x.float().contiguous()
    out = torch.empty(x.shape, dtype=torch.float32, device="cpu")
    other = None if y is None else y.float().contiguous()
    compiled.transformer_add_norm(
        x.data_ptr(), None if other is None else other.data_ptr(),
        alpha.data_ptr(), beta.data_ptr(), eps,
        x.numel() // x.size(-1), x.size(-1), out.data_ptr(), threads_for(OPERATIONS_OF_A_NORM * x.numel()),
    )  # fmt: skip
    return out


def whole_draws(width: int) -> bool:
    """Whether rows of such a width are what the functions below take."""
    compiled = library()
    return compiled is not None and width % compiled.transformer_drawn_at_a_time() == 0


def add_dropped_norm(
    x: Float[Tensor, "*rows D"],
    y: Float[Tensor, "*rows D"],
    alpha: Float[Tensor, " D"],
    beta: Float[Tensor, " D"],
    eps: float,
    levels: int,
    seed: int,
    rounded: Float[Tensor, "*rows D"] | None = None,
) -> tuple[Float[Tensor, "*rows D"], Float[Tensor, "*rows D"], Float[Tensor, "*rows 2"]]:
    """LayerNorm(x + dropout(y)), what it is of, and what each row's norm is made of.

    Args:
        x: float32; rows are `whole_draws`.
        y: float32 or bfloat16.
        alpha: float32, as beta.
        beta: likewise.
        eps: added to the variance.
        levels: 65536 p of the probability p that an element of y is dropped.
        seed: of what is dropped.
        rounded: bfloat16, its elements side by side, where the result is written as well.

    Source: Ba et al. 2016, Eq. 3 and 4; what is dropped is as in `elementwise.drop_out`.
    """
    compiled, width = library(), x.size(-1)
    assert compiled is not None
    x, y = x.contiguous(), y.contiguous()
    out, sums = torch.empty_like(x), torch.empty_like(x)
    statistics = torch.empty(*x.shape[:-1], 2, dtype=torch.float32, device="cpu")
    compiled.transformer_add_dropped_norm(
        x.data_ptr(), y.data_ptr(), y.dtype == torch.bfloat16, alpha.data_ptr(), beta.data_ptr(), eps, levels,
        seed % 2**64, x.numel() // width, width, sums.data_ptr(), statistics.data_ptr(), out.data_ptr(),
        None if rounded is None else rounded.data_ptr(), threads_for(OPERATIONS_OF_A_NORM * x.numel()),
    )  # fmt: skip
    return out, sums, statistics


def add_dropped_norm_gradients(
    d_out: Float[Tensor, "*rows D"],
    sums: Float[Tensor, "*rows D"],
    statistics: Float[Tensor, "*rows 2"],
    alpha: Float[Tensor, " D"],
    y_type: torch.dtype,
    levels: int,
    seed: int,
) -> tuple[Float[Tensor, "*rows D"], Float[Tensor, "*rows D"], Float[Tensor, " D"], Float[Tensor, " D"]]:
    """The gradients of x, y, alpha and beta from that of the norm."""
    compiled, width = library(), sums.size(-1)
    assert compiled is not None
    d_out = d_out.contiguous()
    d_x, d_y = torch.empty_like(sums), torch.empty_like(sums, dtype=y_type)
    d_alpha, d_beta = torch.empty_like(alpha), torch.empty_like(alpha)
    compiled.transformer_add_dropped_norm_gradient(
        d_out.data_ptr(), sums.data_ptr(), statistics.data_ptr(), alpha.data_ptr(), levels, seed % 2**64,
        d_out.numel() // width, width, d_x.data_ptr(), d_y.data_ptr(), y_type == torch.bfloat16, d_alpha.data_ptr(),
        d_beta.data_ptr(), threads_for(OPERATIONS_OF_A_NORM * d_out.numel()),
    )  # fmt: skip
    return d_x, d_y, d_alpha, d_beta
