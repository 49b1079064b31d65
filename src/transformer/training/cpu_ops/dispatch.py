"""The products of training on a CPU, by the compiled kernels where they run."""

import math
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from transformer.blocks import attention
from transformer.blocks.attention import MAX_UNFUSED_LENGTH, Bias, Mask, fused_linear
from transformer.blocks.dropout import Dropout, add_dropout, drop_out, levels
from transformer.blocks.feed_forward import feed_forward
from transformer.blocks.normalization import LayerNormalization
from transformer.blocks.residual import normalized_sum
from transformer.kernels import normalization
from transformer.kernels.attention_autograd import AttentionInputs, attends
from transformer.kernels.elementwise import gelu
from transformer.kernels.gemm import multiplies
from transformer.training.cpu_ops.dropout import add, drawn_seed, drop
from transformer.training.cpu_ops.linear import (
    ROUNDED,
    GradientAccumulator,
    feed,
    linear,
    linear_side_by_side,
    precision_asked,
)
from transformer.training.cpu_ops.tied_embedding import Lookups
from transformer.training.objectives.cross_entropy import smoothed_cross_entropy

WATCHES: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "forward")
"""What is called with a module, or in its place."""


class CompiledProducts(TorchFunctionMode):
    """Within this context, linear layers, attention, dropout, lookups and others go through the functions below.

    Blocks say what is computed and know nothing of it; elsewhere than on a CPU that runs the kernels nothing changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lookups = Lookups()
        self._mapped = GradientAccumulator()

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called in place of every function of torch."""
        if function is F.linear:
            return self._linear(*args, **(kwargs or {}))
        if function is F.gelu:
            return activate(*args, **(kwargs or {}))
        if function is feed_forward:
            return feed(*args, mapped=self._mapped)
        if function is fused_linear:
            return linear_side_by_side(*args, mapped=self._mapped)
        if function is attention:
            return attend(*args, **(kwargs or {}))
        if function is drop_out:
            return drop(*args)
        if function is add_dropout:
            return add(*args)
        if function is normalized_sum:
            return normalize(*args, mapped=self._mapped)
        if function is F.embedding:
            return self._lookups.look_up(*args, **(kwargs or {}))
        if function is smoothed_cross_entropy:
            return self._lookups.loss(*args)
        return function(*args, **(kwargs or {}))

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # named as torch names them
        return linear(input, weight, bias, self._mapped)


def activate(x: Float[Tensor, "*shape"], approximate: str = "none") -> Float[Tensor, "*shape"]:
    """GELU as `torch.nn.functional.gelu`, and its gradient."""
    if approximate not in ("none", "tanh") or not multiplies(x):
        return F.gelu(x, approximate=approximate)  # which names the words it knows
    y: Tensor = _Gelu.apply(x, approximate == "tanh", torch.is_grad_enabled())  # pyright: ignore[reportAssignmentType]
    return y


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, is_by_tanh: bool, has_backward: bool) -> Tensor:
        y, slopes = gelu(x, is_by_tanh=is_by_tanh, wants_slopes=has_backward and ctx.needs_input_grad[0])
        ctx.save_for_backward(slopes)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (slopes,) = ctx.saved_tensors
        return gradients[0].to(slopes.dtype) * slopes, None, None


def attend(
    query: Float[Tensor, "B H T E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S E"],
    mask: Mask | None = None,
    dropout: float = 0.0,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T E"]:
    """As `blocks.attention`, where it would compute the weights of a short source without bias."""
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    is_short = key.size(-2) <= MAX_UNFUSED_LENGTH
    is_plain = bias is None and scale > 0
    if is_short and is_plain and multiplies(query, key, value) and attends(query, key, value, mask):
        found: Tensor = _Attention.apply(query, key, value, mask, scale, dropout)  # pyright: ignore[reportAssignmentType]
        return found
    return attention(query, key, value, mask, dropout, bias=bias, scale=scale)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        ctx.settings = scale, levels(dropout), drawn_seed(dropout)
        out, weights = AttentionInputs(query, key, value, mask, *ctx.settings).forward()
        ctx.save_for_backward(query, key, value, mask, weights)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, mask, weights = ctx.saved_tensors
        found = AttentionInputs(query, key, value, mask, *ctx.settings).backward(weights, gradients[0])
        return *found, None, None, None


def normalize(
    x: Float[Tensor, "*shape"],
    y: Float[Tensor, "*shape"],
    dropout: Dropout,
    norm: nn.Module,
    mapped: GradientAccumulator,
) -> Float[Tensor, "*shape"]:
    """As `blocks.normalized_sum`, in one pass each way where the norm is a `LayerNormalization` that nobody watches."""
    p, given_back = dropout.p if dropout.training else 0.0, mapped.take(x)
    if not isinstance(norm, LayerNormalization) or not _is_normalized(x, y, norm):
        return norm(add(x, y, p))
    is_mapped_next = torch.is_grad_enabled() and precision_asked() == torch.bfloat16
    rounded = torch.empty(x.shape, dtype=torch.bfloat16, device="cpu") if is_mapped_next else None
    out: Tensor = _NormalizedSum.apply(given_back, y, norm.alpha, norm.beta, norm.eps, p, rounded)  # pyright: ignore[reportAssignmentType]
    if rounded is not None:
        setattr(out, ROUNDED, (rounded, out._version))
    return out


def _is_normalized(x: Tensor, y: Tensor, norm: LayerNormalization) -> bool:
    """Whether the kernel computes what this norm would."""
    alpha, beta = norm.alpha, norm.beta
    is_plain = type(norm) is LayerNormalization and not any(vars(norm).get(name) for name in WATCHES)
    is_known = x.shape == y.shape and multiplies(x, y, alpha, beta) and normalization.whole_draws(x.size(-1))
    is_whole = alpha.shape == beta.shape == x.shape[-1:] and alpha.is_contiguous() and beta.is_contiguous()
    return is_plain and is_known and is_whole and x.dtype == alpha.dtype == beta.dtype == torch.float32


class _NormalizedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, alpha: Tensor, beta: Tensor, eps: float, p: float, rounded: Tensor | None
    ) -> Tensor:
        ctx.settings = y.dtype, levels(p), drawn_seed(p)
        out, *found = normalization.add_dropped_norm(x, y, alpha, beta, eps, *ctx.settings[1:], rounded)
        ctx.save_for_backward(*found, alpha)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        found = normalization.add_dropped_norm_gradients(gradients[0], *ctx.saved_tensors, *ctx.settings)
        return *found, None, None, None
