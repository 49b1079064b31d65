"""The position-wise feed-forward network, plain and gated."""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from transformer.blocks.dropout import Dropout, drop_out
from transformer.blocks.overrides import overridable

Activation = Callable[[Tensor], Tensor]


class FeedForwardBlock(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, applied at every position separately.

    Args:
        d_model: Width of input and output.
        d_ff: Width of the inner layer.
        dropout: Probability of zeroing an inner element after the activation, called `activation_dropout` in a recipe.
            The paper uses none here (0.0).
        activation: Activation function; default: the paper's ReLU, max(0, x).
        bias: Whether to add the biases b_1 and b_2.

    Source: Vaswani et al. 2017, Sec. 3.3, Eq. 2.
    """

    def __init__(
        self, d_model: int, d_ff: int, dropout: float, *, activation: Activation = torch.relu_, bias: bool = True
    ) -> None:
        super().__init__()
        self.activation = activation
        self.linear_1 = nn.Linear(d_model, d_ff, bias=bias)
        self.dropout = Dropout(dropout)
        self.linear_2 = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Returns FFN(x)."""
        p = self.dropout.p if self.training else 0.0
        return feed_forward(x, self.linear_1, self.activation, p, self.linear_2)


@overridable
def feed_forward(
    x: Float[Tensor, "B T D"], linear_1: nn.Linear, activation: Activation, p: float, linear_2: nn.Linear
) -> Float[Tensor, "B T D"]:
    """Computes the feed-forward network as one function.

    Args:
        x: Input of the network.
        linear_1: First linear layer, W_1 and b_1.
        activation: Activation function between the linear layers.
        p: Probability of zeroing an element after the activation.
        linear_2: Second linear layer, W_2 and b_2.
    """
    return linear_2(drop_out(activation(linear_1(x)), p))


class GatedFeedForward(nn.Module):
    """Gated feed-forward network (GLU): FFN(x) = (activation(x W_g) * (x W_1)) W_2.

    With SiLU it is SwiGLU, with GELU it is GEGLU, with ReLU it is ReGLU. For as many parameters as `FeedForwardBlock`,
    choose two thirds of its d_ff.

    Args:
        d_model: Width of input and output.
        d_ff: Width of the inner layer.
        dropout: Probability of zeroing an inner element.
        activation: Activation function of the gate.
        bias: Whether the linear layers have biases, which the paper omits.

    Source: Shazeer 2020, "GLU Variants Improve Transformer", Eq. 6.
    """

    def __init__(
        self, d_model: int, d_ff: int, dropout: float, *, activation: Activation = F.silu, bias: bool = False
    ) -> None:
        super().__init__()
        self.activation = activation
        self.gate = nn.Linear(d_model, d_ff, bias=bias)
        self.linear_1 = nn.Linear(d_model, d_ff, bias=bias)
        self.dropout = Dropout(dropout)
        self.linear_2 = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Returns FFN(x)."""
        return self.linear_2(self.dropout(self.activation(self.gate(x)) * self.linear_1(x)))


ACTIVATIONS: Final[dict[str, Activation]] = {
    "relu": torch.relu_, "silu": F.silu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh")
}  # fmt: skip
"""Activation functions by their names in configurations.

`gelu_tanh` approximates GELU by a hyperbolic tangent (Hendrycks and Gimpel 2016, Sec. 2).
"""
