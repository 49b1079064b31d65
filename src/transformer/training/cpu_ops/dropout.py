"""Dropout for training on a CPU, where PyTorch's own takes longer than everything else in a small layer.

Each element is decided by 16 random bits, so p is rounded to a multiple of 1/65536. The factor is computed from the
rounded p, so that the expectation stays exact.
"""

from typing import Any, Final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from transformer.blocks.dropout import drop_out
from transformer.kernels import elementwise
from transformer.kernels.gemm import supports_tensors

LEVELS: Final = 1 << 16
"""Number of distinct 16-bit random numbers, one of which is drawn per element."""
BITS: Final = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
"""Integer dtype with the width of each floating-point dtype."""


def levels(p: float) -> int:
    """Returns how many of the `LEVELS` random numbers drop an element; never all of them."""
    return min(round(p * LEVELS), LEVELS - 1)


def cpu_dropout(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Implements `blocks.drop_out`; with the kernels, the backward pass draws the mask again instead of storing it."""
    if not p:
        return x
    if supports_tensors(x):
        y: Tensor = _Dropout.apply(None, x, p)  # pyright: ignore[reportAssignmentType]
    elif x.device.type == "cpu" and x.dtype in BITS:
        y = _MaskedDropout.apply(x, p)  # pyright: ignore[reportAssignmentType]
    else:
        y = drop_out(x, p)
    return y


def cpu_add_dropout(x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Implements `blocks.add_dropout`; with the kernels, in one pass over memory."""
    if x.shape != y.shape or not supports_tensors(x, y) or x.dtype != torch.promote_types(x.dtype, y.dtype):
        return x + cpu_dropout(y, p)
    z: Tensor = _Dropout.apply(x, y, p)  # pyright: ignore[reportAssignmentType]
    return z


def draw_seed(p: float) -> int:
    """Draws the seed of a dropout mask from PyTorch's generator; returns 0 without drawing if p is 0."""
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_(-(2**63), None)) if p else 0


class _Dropout(torch.autograd.Function):
    """Dropout by a kernel whose mask depends on a seed and the position of each element alone."""

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


class _MaskedDropout(torch.autograd.Function):
    """Dropout by bit masks: an element is kept by a bitwise `and` with -1 (all bits set) and dropped by one with 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        ctx.scale = LEVELS / (LEVELS - levels(p))
        keep = _random_bits(x.numel()).ge_(levels(p) - LEVELS // 2).neg_().view(x.shape)
        ctx.save_for_backward(keep)
        return _keep(x, keep, ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (keep,) = ctx.saved_tensors
        return _keep(gradients[0], keep, ctx.scale), None


def _random_bits(n: int) -> Tensor:
    """Returns n random 16-bit numbers from torch's generator."""
    return torch.empty((n + 3) // 4, dtype=torch.int64, device="cpu").random_(-(2**63), None).view(torch.int16)[:n]


def _keep(x: Tensor, keep: Tensor, scale: float) -> Tensor:
    bits = BITS[x.dtype]
    return (x.contiguous().view(bits) & keep.to(bits)).view(x.dtype).mul_(scale)
