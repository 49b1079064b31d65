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
