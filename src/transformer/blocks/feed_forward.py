"""The position-wise feed-forward network."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer.blocks.dropout import Dropout

Activation = Callable[[Tensor], Tensor]


class FeedForwardBlock(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position.

    Args:
        d_model: width of input and output.
        d_ff: width of the inner layer.
        dropout: probability of zeroing an inner element after the activation. The paper has none here (0.0); it is the
            `activation_dropout` of a recipe.
        activation: in place of the paper's ReLU, max(0, x).

    Source: Vaswani et al. 2017, Sec. 3.3, Eq. 2.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float, *, activation: Activation = torch.relu) -> None:
        super().__init__()
        self.activation = activation
        self.linear_1 = nn.Linear(d_model, d_ff)
        self.dropout = Dropout(dropout)
        self.linear_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Returns FFN(x)."""
        return self.linear_2(self.dropout(self.activation(self.linear_1(x))))
