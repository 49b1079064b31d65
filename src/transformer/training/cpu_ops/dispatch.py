"""Replaces functions of PyTorch and of the blocks with the compiled kernels, for training on a CPU."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from transformer.blocks import attention
from transformer.blocks.attention import MAX_UNFUSED_LENGTH, Bias, Mask, attention_weights, fused_linear
from transformer.blocks.dropout import add_dropout, drop_out
from transformer.blocks.feed_forward import feed_forward
from transformer.kernels.attention_autograd import AttentionInputs, supports_attention_inputs
from transformer.kernels.elementwise import gelu
from transformer.kernels.gemm import supports_tensors
from transformer.training.cpu_ops.dropout import cpu_add_dropout, cpu_dropout, draw_seed, levels
from transformer.training.cpu_ops.linear import cpu_feed_forward, cpu_fused_linear, cpu_linear


class CpuKernelMode(TorchFunctionMode):
    """A context in which linear layers, attention, dropout and GELU use the compiled kernels.

    The blocks need not know about it. Functions whose inputs the kernels do not support, such as tensors on a GPU,
    are computed as usual.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Handles a call of an overridable function, by a kernel if there is one."""
        if function is F.linear:
            return cpu_linear(*args, **(kwargs or {}))
        if function is F.gelu:
            return cpu_gelu(*args, **(kwargs or {}))
        if function is feed_forward:
            return cpu_feed_forward(*args, **(kwargs or {}))
        if function is fused_linear:
            return cpu_fused_linear(*args, **(kwargs or {}))
        if function is attention:
            return cpu_attention(*args, **(kwargs or {}))
        if function is drop_out:
            return cpu_dropout(*args, **(kwargs or {}))
        if function is add_dropout:
            return cpu_add_dropout(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def cpu_gelu(x: Float[Tensor, "*shape"], approximate: str = "none") -> Float[Tensor, "*shape"]:
    """Implements `torch.nn.functional.gelu` with its gradient."""
    if approximate not in ("none", "tanh") or not supports_tensors(x):
        return F.gelu(x, approximate=approximate)  # raises an error that lists the valid values
    y: Tensor = _Gelu.apply(x, approximate == "tanh", torch.is_grad_enabled())  # pyright: ignore[reportAssignmentType]
    return y


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, tanh_approximation: bool, needs_backward: bool) -> Tensor:
        y, derivatives = gelu(
            x, tanh_approximation=tanh_approximation, needs_derivatives=needs_backward and ctx.needs_input_grad[0]
        )
        ctx.save_for_backward(derivatives)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (derivatives,) = ctx.saved_tensors
        return gradients[0].to(derivatives.dtype) * derivatives, None, None


def cpu_attention(
    query: Float[Tensor, "B H T E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S E"],
    mask: Mask | None = None,
    dropout: float = 0.0,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T E"]:
    """Implements `blocks.attention`; the kernel is used for short sources without a bias."""
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    is_short = key.size(-2) <= MAX_UNFUSED_LENGTH
    has_plain_scores = bias is None and scale > 0
    is_supported = supports_tensors(query, key, value) and supports_attention_inputs(query, key, value, mask)
    if is_short and has_plain_scores and is_supported:
        out: Tensor = _Attention.apply(query, key, value, mask, scale, dropout)  # pyright: ignore[reportAssignmentType]
        return out
    if is_short and dropout and query.device.type == "cpu":
        weights = cpu_dropout(attention_weights(query, key, mask, bias=bias, scale=scale), dropout)
        return weights.to(value.dtype) @ value
    return attention(query, key, value, mask, dropout, bias=bias, scale=scale)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        ctx.settings = scale, levels(dropout), draw_seed(dropout)
        out, weights = AttentionInputs(query, key, value, mask, *ctx.settings).forward()
        ctx.save_for_backward(query, key, value, mask, weights)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, mask, weights = ctx.saved_tensors
        d_inputs = AttentionInputs(query, key, value, mask, *ctx.settings).backward(weights, gradients[0])
        return *d_inputs, None, None, None
