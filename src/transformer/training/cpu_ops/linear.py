"""Linear layers and feed-forward networks for training on a CPU with the compiled kernels."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from transformer.blocks.attention import fused_linear
from transformer.blocks.feed_forward import ACTIVATIONS, Activation
from transformer.kernels import elementwise
from transformer.kernels.elementwise import column_sums, gelu
from transformer.kernels.gemm import Epilogue, matmul, supports_tensors
from transformer.training.cpu_ops.dropout import LEVELS, cpu_dropout, draw_seed, levels

FUSED_ACTIVATIONS: Final = {ACTIVATIONS[name]: name for name in ("relu", "gelu", "gelu_tanh")}
"""Activations of feed-forward networks that are computed as one autograd function."""


def cpu_linear(
    x: Float[Tensor, "*rows K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None = None
) -> Float[Tensor, "*rows N"]:
    """Implements `torch.nn.functional.linear` with its gradient.

    Under autocast, x is rounded to bfloat16 once and kept for the backward pass, as autocast does. Weights are rounded
    while they are read, and their gradients are computed in float32, whereas autocast stores both in two dtypes.
    """
    precision = autocast_dtype()
    if not _is_supported(x, weight, bias, precision):
        return F.linear(x, weight, bias)
    (y,) = _Linear.apply(x, precision, weight, bias)  # pyright: ignore[reportGeneralTypeIssues]
    return y


def cpu_fused_linear(x: Float[Tensor, "*rows K"], layers: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
    """Implements `blocks.fused_linear`.

    The weights are concatenated in the backward pass only, and only if the gradients of the results are adjacent.
    """
    precision = autocast_dtype()
    if not all(_is_supported(x, layer.weight, layer.bias, precision) for layer in layers):
        return fused_linear(x, layers)
    weights_and_biases = (parameter for layer in layers for parameter in (layer.weight, layer.bias))
    results: tuple[Tensor, ...] = _Linear.apply(x, precision, *weights_and_biases)  # pyright: ignore[reportAssignmentType]
    return results


def autocast_dtype() -> torch.dtype:
    """Returns the dtype of products under autocast; float32 without autocast."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32


def _is_supported(x: Tensor, weight: Tensor, bias: Tensor | None, precision: torch.dtype) -> bool:
    """Whether the kernel can compute this layer."""
    float32_tensors = [weight] if bias is None else [weight, bias]
    float32_tensors = float32_tensors if precision == torch.bfloat16 else [x, *float32_tensors]
    if not all(tensor.dtype == torch.float32 for tensor in float32_tensors):
        return False
    is_contiguous = weight.is_contiguous() and (bias is None or bias.is_contiguous())
    return is_contiguous and precision in (torch.float32, torch.bfloat16) and supports_tensors(x, *float32_tensors)


class _Linear(torch.autograd.Function):
    """One or several linear layers with the same input; `parameters` alternates between weights and biases."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, precision: torch.dtype, *parameters: Tensor | None) -> tuple[Tensor, ...]:
        rows = _as_matrix(x, precision)
        weights, biases = [weight for weight in parameters[::2] if weight is not None], parameters[1::2]
        results: list[Tensor] = []
        for weight, bias in zip(weights, biases, strict=True):
            results.append(torch.empty(*x.shape[:-1], weight.size(0), dtype=precision, device="cpu"))
            matmul(rows, weight.t(), Epilogue(bias), precision=precision, out=results[-1].view(-1, weight.size(0)))
        ctx.save_for_backward(rows, *weights)
        ctx.shape, ctx.dtype, ctx.precision = x.shape, x.dtype, precision
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows, *weights = ctx.saved_tensors
        if all(dy is None for dy in gradients):  # the results were not used
            return None, None, *[None] * (2 * len(weights))
        dys = [
            _as_gradient_matrix(dy, rows, weight, ctx.precision) for dy, weight in zip(gradients, weights, strict=True)
        ]
        joint_dy = _join_adjacent(dys) if len(dys) > 1 else None
        dx = None
        if ctx.needs_input_grad[0]:
            factors = list(zip(dys, weights, strict=True)) if joint_dy is None else [(joint_dy, torch.cat(weights))]
            dx = torch.empty(ctx.shape, dtype=torch.float32 if len(factors) > 1 else ctx.dtype, device="cpu")
            for i, (dy, weight) in enumerate(factors):
                epilogue = Epilogue(accumulate=i > 0)
                matmul(dy, weight, epilogue, precision=ctx.precision, out=dx.view(rows.shape))
            dx = dx.to(ctx.dtype)
        needs, d_parameters = ctx.needs_input_grad[2:], list[Tensor | None]()
        if joint_dy is not None and all(needs[::2]) and len(set(needs[1::2])) == 1:
            widths = [weight.size(0) for weight in weights]
            joint_gradients = _weight_and_bias_gradients(joint_dy, rows, ctx.precision, needs[:2])
            parts = ([None] * len(widths) if joint is None else joint.split(widths) for joint in joint_gradients)
            d_parameters += chain.from_iterable(zip(*parts, strict=True))
        else:
            for i, dy in enumerate(dys):
                d_parameters += _weight_and_bias_gradients(dy, rows, ctx.precision, needs[2 * i : 2 * i + 2])
        return dx, None, *d_parameters


def _as_matrix(x: Float[Tensor, "*rows K"], precision: torch.dtype) -> Float[Tensor, "M K"]:
    """Returns x as a matrix in the given precision."""
    return x.reshape(-1, x.size(-1)).to(precision).contiguous()


def _as_gradient_matrix(
    dy: Tensor | None, rows: Tensor, weight: Tensor, precision: torch.dtype
) -> Float[Tensor, "M N"]:
    """Returns the gradient of a layer's result as a matrix; zeros if the result was not used."""
    if dy is None:
        return torch.zeros(rows.size(0), weight.size(0), dtype=precision, device="cpu")
    dy = dy.reshape(-1, weight.size(0))
    return dy if dy.stride(1) == 1 else dy.contiguous()


def _join_adjacent(parts: Sequence[Float[Tensor, "M _"]]) -> Float[Tensor, "M N"] | None:
    """Returns one view of matrices whose rows are adjacent in memory; None if they are not adjacent."""
    first, width = parts[0], 0
    for part in parts:
        is_next = part.data_ptr() == first.data_ptr() + width * first.element_size() and part.stride() == first.stride()
        if not is_next or part.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            return None
        width += part.size(1)
    return first.as_strided((first.size(0), width), first.stride()) if first.stride(0) >= width else None


def _weight_and_bias_gradients(
    dy: Float[Tensor, "M N"], x: Float[Tensor, "M K"], precision: torch.dtype, needs: Sequence[bool]
) -> tuple[Float[Tensor, "N K"] | None, Float[Tensor, " N"] | None]:
    """Computes the gradients of a layer's weight and bias, as far as they are needed."""
    needs_weight, needs_bias = needs
    if not needs_weight:
        return None, column_sums(dy) if needs_bias else None
    d_bias = torch.empty(dy.size(1), dtype=torch.float32, device="cpu") if needs_bias else None
    d_weight = torch.empty(dy.size(1), x.size(1), dtype=torch.float32, device="cpu")
    return matmul(dy.t(), x, Epilogue(row_sums=d_bias), precision=precision, out=d_weight), d_bias


def cpu_feed_forward(
    x: Float[Tensor, "*rows D"], linear_1: nn.Linear, activation: Activation, p: float, linear_2: nn.Linear
) -> Float[Tensor, "*rows D"]:
    """Implements `blocks.feed_forward`.

    In the backward pass, the derivatives of activation and dropout are applied in the epilogue of a product instead of
    a separate pass over memory.
    """
    precision, name = autocast_dtype(), FUSED_ACTIVATIONS.get(activation)
    if name is None or not all(_is_supported(x, layer.weight, layer.bias, precision) for layer in (linear_1, linear_2)):
        inner = activation(cpu_linear(x, linear_1.weight, linear_1.bias))
        return cpu_linear(cpu_dropout(inner, p), linear_2.weight, linear_2.bias)
    parameters = (parameter for layer in (linear_1, linear_2) for parameter in (layer.weight, layer.bias))
    y: Tensor = _FeedForward.apply(x, precision, (name, p), torch.is_grad_enabled(), *parameters)  # pyright: ignore[reportAssignmentType]
    return y


class _FeedForward(torch.autograd.Function):
    """A feed-forward network as one autograd function.

    The hidden layer after activation and dropout is kept for the backward pass, and so are its derivatives except for
    ReLU, whose derivative follows from the sign of the hidden layer.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, precision: torch.dtype, activation_and_dropout: tuple[str, float], needs_backward: bool,
        w_1: Tensor, b_1: Tensor | None, w_2: Tensor, b_2: Tensor | None,
    ) -> Tensor:  # fmt: skip
        (activation, p), derivatives = activation_and_dropout, None
        rows = _as_matrix(x, precision)
        inner = torch.empty(rows.size(0), w_1.size(0), dtype=precision, device="cpu")
        matmul(rows, w_1.t(), Epilogue(b_1, relu=activation == "relu"), precision=precision, out=inner)
        if activation != "relu":
            needs_derivatives = needs_backward and any(ctx.needs_input_grad[:6])
            _, derivatives = gelu(
                inner, tanh_approximation=activation == "gelu_tanh", needs_derivatives=needs_derivatives, in_place=True
            )
        if p:
            seed = draw_seed(p)
            for tensor in (inner, derivatives):
                if tensor is not None:
                    elementwise.drop_out(tensor, levels(p), seed, dtype=precision, in_place=True)
        y = torch.empty(*x.shape[:-1], w_2.size(0), dtype=precision, device="cpu")
        matmul(inner, w_2.t(), Epilogue(b_2), precision=precision, out=y.view(-1, w_2.size(0)))
        ctx.save_for_backward(rows, inner, derivatives, w_1, w_2)
        ctx.shape, ctx.dtype, ctx.precision = x.shape, x.dtype, precision
        ctx.factor = LEVELS / (LEVELS - levels(p))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows, inner, derivatives, w_1, w_2 = ctx.saved_tensors
        needs, precision = ctx.needs_input_grad, ctx.precision
        dy = _as_gradient_matrix(gradients[0], rows, w_2, precision)
        d_inner = torch.empty_like(inner)
        if derivatives is None:
            epilogue = Epilogue(relu_output=inner, factor=ctx.factor)
        else:
            epilogue = Epilogue(derivatives=derivatives)
        matmul(dy, w_2, epilogue, precision=precision, out=d_inner)
        d_linear_2 = _weight_and_bias_gradients(dy, inner, precision, needs[6:8])
        dx = None
        if needs[0]:
            dx = torch.empty(ctx.shape, dtype=ctx.dtype, device="cpu")
            matmul(d_inner, w_1, Epilogue(), precision=precision, out=dx.view(rows.shape))
        d_linear_1 = _weight_and_bias_gradients(d_inner, rows, precision, needs[4:6])
        return dx, None, None, None, *d_linear_1, *d_linear_2
