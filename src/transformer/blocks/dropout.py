"""Dropout, with a fast implementation for CPUs."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

LEVELS: Final = 1 << 16
"""Number of distinct 16-bit random numbers, one of which is drawn per element on a CPU.

Dropout probabilities are therefore multiples of 1/65536.
"""


class Dropout(nn.Module):
    """Zeroes each element with probability p and multiplies the others by 1 / (1 - p), in training only.

    On a CPU, PyTorch spends more time on drawing Bernoulli numbers than on everything else in a small layer. Here
    each element is decided by 16 bits of a 64-bit random number, so p is rounded to a multiple of 1/65536. The factor
    is computed from the rounded p, so that the expectation stays exact.

    Args:
        p: Probability of zeroing an element, 0 <= p < 1.

    Source: Srivastava et al. 2014, "Dropout", Sec. 4, scaled in training rather than at test time.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Returns `x` with some elements zeroed in training, and `x` itself in evaluation mode."""
        return drop_out(x, self.p if self.training else 0.0)

    def add_dropout(self, x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Returns `x` + dropout(`y`)."""
        return add_dropout(x, y, self.p if self.training else 0.0)

    def extra_repr(self) -> str:
        """Returns the probability, for `print(model)`."""
        return f"p={self.p}"


def drop_out(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Applies `Dropout` as in training; p = 0 returns `x` itself.

    Like `attention`, the function can be overridden within a context.
    """
    if not p:
        return x
    if has_torch_function((x,)):
        return handle_torch_function(drop_out, (x,), x, p)
    if x.device.type != "cpu" or x.dtype not in BITS or torch.compiler.is_compiling():
        return F.dropout(x, p)
    dropped: Tensor = _Dropout.apply(x, p)  # pyright: ignore[reportAssignmentType]
    return dropped


def add_dropout(x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Returns `x` + dropout(`y`); like `drop_out`, it can be overridden within a context."""
    if has_torch_function((x, y)):
        return handle_torch_function(add_dropout, (x, y), x, y, p)
    return x + drop_out(y, p)


def levels(p: float) -> int:
    """Returns how many of the `LEVELS` random numbers drop an element; never all of them."""
    return min(round(p * LEVELS), LEVELS - 1)


BITS: Final = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
"""Integer dtype with the width of each floating-point dtype."""


class _Dropout(torch.autograd.Function):
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
    return torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:n]


def _keep(x: Tensor, keep: Tensor, scale: float) -> Tensor:
    bits = BITS[x.dtype]
    return (x.contiguous().view(bits) & keep.to(bits)).view(x.dtype).mul_(scale)
