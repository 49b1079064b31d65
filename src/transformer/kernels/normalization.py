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
