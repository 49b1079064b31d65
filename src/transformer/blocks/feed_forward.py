"""The position-wise feed-forward network, plain and gated."""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

from transformer.blocks.dropout import Dropout, drop_out

Activation = Callable[[Tensor], Tensor]


class FeedForwardBlock(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position.

    Args:
        d_model: width of input and output.
        d_ff: width of the inner layer.
        dropout: probability of zeroing an inner element after the activation. The paper has none here (0.0); it is the
            `activation_dropout` of a recipe.
        activation: in place of the paper's ReLU, max(0, x).
        bias: False leaves out b_1 and b_2.

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


def feed_forward(
    x: Float[Tensor, "B T D"], linear_1: nn.Linear, activation: Activation, p: float, linear_2: nn.Linear
) -> Float[Tensor, "B T D"]:
    """The network as one function, which can be replaced within a context, as `attention` can.

    Args:
        x: its input.
        linear_1: W_1 and b_1.
        activation: between the maps.
        p: probability of zeroing an element after it.
        linear_2: W_2 and b_2.
    """
    if has_torch_function((x,)):
        return handle_torch_function(feed_forward, (x,), x, linear_1, activation, p, linear_2)
    return linear_2(drop_out(activation(linear_1(x)), p))


class GatedFeedForward(nn.Module):
    """(activation(x W_g) * (x W_1)) W_2: one map of the input decides how much of another passes.

    With SiLU it is SwiGLU, with GELU it is GEGLU, with ReLU ReGLU. To hold as many parameters as
    `FeedForwardBlock`, d_ff is two thirds of its.

    Args:
        d_model: width of input and output.
        d_ff: width of the inner layer.
        dropout: probability of zeroing an inner element.
        activation: of the gate.
        bias: give the maps biases, which the paper leaves out.

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
        """Returns the gated FFN(x)."""
        return self.linear_2(self.dropout(self.activation(self.gate(x)) * self.linear_1(x)))


ACTIVATIONS: Final[dict[str, Activation]] = {
    "relu": torch.relu_, "silu": F.silu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh")
}  # fmt: skip
"""By the names that configurations use; gelu_tanh approximates GELU (Hendrycks and Gimpel 2016, Sec. 2)."""
