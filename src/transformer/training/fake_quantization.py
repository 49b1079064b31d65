"""Quantization-aware training: products are rounded as int8 inference rounds them, with gradients as if they were not.

A model that is trained so learns weights that lose little by the rounding. The sources are Jacob et al. 2018,
"Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", and for the gradient,
Bengio et al. 2013, "Estimating or Propagating Gradients Through Stochastic Neurons for Conditional Computation".
"""

import inspect
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

from transformer.blocks.attention import fused_linear
from transformer.blocks.feed_forward import feed_forward
from transformer.training.objectives.cross_entropy import smoothed_cross_entropy

LARGEST: Final = 127
"""Largest absolute value of an int8 number in a symmetric range."""


class FakeQuantizationMode(TorchFunctionMode):
    """A context in which linear layers, embeddings and the output projection compute what they compute in int8.

    Weights have a scale for each row, and inputs one for each position, as in `PackedLinear`. Other functions are those
    of the contexts around this one. The master weights stay in float32.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Handles a call of an overridable function."""
        kwargs = kwargs or {}
        if function is F.linear:
            return fake_quantized_linear(*args, **kwargs)
        if function is F.embedding:
            return fake_quantize(function(*args, **kwargs))
        if function is smoothed_cross_entropy:
            hidden, weight, *others = args
            return function(fake_quantize(hidden), fake_quantize(weight), *others, **kwargs)
        if function is feed_forward or function is fused_linear:  # whose linear layers are handled one by one
            with self:
                return inspect.unwrap(function)(*args, **kwargs)
        return function(*args, **kwargs)


def fake_quantized_linear(
    x: Float[Tensor, "*rows K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None = None
) -> Float[Tensor, "*rows N"]:
    """Implements `torch.nn.functional.linear` with inputs and weights rounded to int8.

    The product is one of whole numbers of up to 127, which bfloat16 represents exactly.
    """
    values, scales = round_rows(x)
    units, unit_scales = round_rows(weight)
    product = F.linear(values, units)
    y = product.float() * (scales * unit_scales[:, 0])
    return (y if bias is None else y + bias).to(product.dtype)


def fake_quantize(x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows K"]:
    """Rounds each row to the multiples of its largest absolute value / 127; the gradient passes unchanged."""
    values, scales = round_rows(x)
    return (values * scales).to(x.dtype)


def round_rows(x: Float[Tensor, "*rows K"]) -> tuple[Float[Tensor, "*rows K"], Float[Tensor, "*rows 1"]]:
    """Rounds each row to whole numbers of up to 127; returns these and the scale of each row.

    The gradient passes through the rounding (straight-through estimator), and none goes to the scales.
    """
    largest = x.detach().float().abs().amax(dim=-1, keepdim=True)
    per_unit = torch.where(largest > 0, LARGEST / largest, 0.0)
    values: Tensor = _Round.apply(x.float() * per_unit)  # pyright: ignore[reportAssignmentType]
    return values, largest / LARGEST


class _Round(torch.autograd.Function):
    """Rounds to the nearest whole number; the gradient is that of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        del ctx
        return x.round()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        del ctx
        return gradients[0]
