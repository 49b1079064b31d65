"""Dropout for training on a CPU with the compiled kernels."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from transformer.blocks.dropout import add_dropout, drop_out, levels
from transformer.kernels import elementwise
from transformer.kernels.gemm import supports_tensors


def cpu_dropout(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Implements `blocks.drop_out`; the backward pass draws the mask again instead of storing it."""
    if not p or not supports_tensors(x):
        return drop_out(x, p)
    y: Tensor = _Dropout.apply(None, x, p)  # pyright: ignore[reportAssignmentType]
    return y


def cpu_add_dropout(x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Implements `blocks.add_dropout` in one pass over memory."""
    if x.shape != y.shape or not supports_tensors(x, y) or x.dtype != torch.promote_types(x.dtype, y.dtype):
        return add_dropout(x, y, p)
    z: Tensor = _Dropout.apply(x, y, p)  # pyright: ignore[reportAssignmentType]
    return z


def draw_seed(p: float) -> int:
    """Draws the seed of a dropout mask from PyTorch's generator; returns 0 without drawing if p is 0."""
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_(-(2**63), None)) if p else 0


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor | None, y: Tensor, p: float) -> Tensor:
        ctx.settings, ctx.dtype = (levels(p), draw_seed(p)), y.dtype
        return elementwise.drop_out(y, *ctx.settings, residual=x, dtype=y.dtype if x is None else x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (dz,) = gradients
        dy = elementwise.drop_out(dz, *ctx.settings, dtype=ctx.dtype) if ctx.needs_input_grad[1] else None
        return dz if ctx.needs_input_grad[0] else None, dy, None
