"""Dropout of training on a CPU, by the compiled kernels where they run."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from transformer.blocks.dropout import add_dropout, drop_out, levels
from transformer.kernels import elementwise
from transformer.kernels.gemm import multiplies


def drop(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """As `blocks.drop_out`, by numbers that are drawn again on the way back, not kept."""
    if not p or not multiplies(x):
        return drop_out(x, p)
    y: Tensor = _Dropped.apply(None, x, p)  # pyright: ignore[reportAssignmentType]
    return y


def add(x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """As `blocks.add_dropout`, in one pass."""
    if x.shape != y.shape or not multiplies(x, y) or x.dtype != torch.promote_types(x.dtype, y.dtype):
        return add_dropout(x, y, p)
    z: Tensor = _Dropped.apply(x, y, p)  # pyright: ignore[reportAssignmentType]
    return z


def drawn_seed(p: float) -> int:
    """From torch's generator; 0 where nothing is dropped."""
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_(-(2**63), None)) if p else 0


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor | None, y: Tensor, p: float) -> Tensor:
        ctx.settings, ctx.type = (levels(p), drawn_seed(p)), y.dtype
        return elementwise.drop_out(y, *ctx.settings, onto=x, dtype=y.dtype if x is None else x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (dz,) = gradients
        dy = elementwise.drop_out(dz, *ctx.settings, dtype=ctx.type) if ctx.needs_input_grad[1] else None
        return dz if ctx.needs_input_grad[0] else None, dy, None
