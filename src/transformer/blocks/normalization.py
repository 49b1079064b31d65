"""Normalization of the feature vector at each position."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class LayerNormalization(nn.Module):
    """Computes alpha * (x - mean) / sqrt(variance + eps) + beta over the last axis, with learned alpha and beta.

    alpha is often called gamma. The variance is the biased one (divided by d_model), as in Ba et al. They have no eps;
    here it is added inside the root, as in `torch.nn.LayerNorm`. Some tutorials divide by (standard deviation + eps)
    instead, which is a different function.

    Args:
        d_model: Width of the last axis.
        eps: Constant added to the variance, so that a constant row does not divide by zero.

    Source: Ba et al. 2016, Eq. 3 (statistics) and Eq. 4 (gain and bias); used in Vaswani et al. 2017, Sec. 3.1.
    """

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.alpha = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Returns `x` with each row normalized, scaled and shifted."""
        return F.layer_norm(x, self.alpha.shape, self.alpha, self.beta, self.eps)


class Scale(nn.Module):
    """Multiplies its input by a constant.

    Args:
        factor: The constant.
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Returns factor * x."""
        return x * self.factor


class RMSNormalization(nn.Module):
    """Computes alpha * x / sqrt(mean(x^2) + eps) over the last axis, with learned alpha.

    Unlike `LayerNormalization`, it subtracts no mean and has no shift. The mean of squares is computed in float32 or
    wider.

    Args:
        d_model: Width of the last axis.
        eps: Constant added to the mean of squares, which the paper omits.

    Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", Eq. 4.
    """

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.alpha = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Returns `x` with each row divided by its root mean square and scaled by alpha."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return self.alpha * (wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()).to(x.dtype)
