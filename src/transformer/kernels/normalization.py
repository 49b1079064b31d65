"""Residual addition and layer normalization in one pass over memory."""

from typing import Final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from transformer.kernels.library import library, threads_for

OPERATIONS_PER_ELEMENT: Final = 8
"""Approximate number of operations of a layer normalization per element, as in kernels.h."""


def add_norm(
    x: Float[Tensor, "*rows D"],
    y: Float[Tensor, "*rows D"] | None,
    alpha: Float[Tensor, " D"],
    beta: Float[Tensor, " D"] | None,
    eps: float,
) -> Float[Tensor, "*rows D"]:
    """Computes LayerNorm(x + y), or LayerNorm(x) if y is None; without beta, RMSNorm.

    Raises:
        ValueError: The parameters do not have the width of the rows.

    Source: Ba et al. 2016, Eq. 3 and 4; Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", Eq. 4.
    """
    compiled = library()
    if compiled is None:
        x = x if y is None else x + y
        if beta is None:
            return F.rms_norm(x, alpha.shape, alpha, eps)
        return F.layer_norm(x, alpha.shape, alpha, beta, eps)
    if alpha.shape != x.shape[-1:] or (beta is not None and beta.shape != x.shape[-1:]):
        shapes = f"alpha={tuple(alpha.shape)}" + ("" if beta is None else f" and beta={tuple(beta.shape)}")
        raise ValueError(f"{shapes} do not match rows of {x.size(-1)}; pass parameters of that width")
    x = x.float().contiguous()
    out = torch.empty(x.shape, dtype=torch.float32, device="cpu")
    other = None if y is None else y.float().contiguous()
    compiled.transformer_add_norm(
        x.data_ptr(), None if other is None else other.data_ptr(),
        alpha.data_ptr(), None if beta is None else beta.data_ptr(), eps,
        x.numel() // x.size(-1), x.size(-1), out.data_ptr(), threads_for(OPERATIONS_PER_ELEMENT * x.numel()),
    )  # fmt: skip
    return out
