"""Dropout: some elements become zero in training."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from transformer.blocks.overrides import overridable


class Dropout(nn.Module):
    """Zeroes each element with probability p and multiplies the others by 1 / (1 - p), in training only.

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


@overridable
def drop_out(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Applies `Dropout` as in training; p = 0 returns `x` itself."""
    return F.dropout(x, p) if p else x


@overridable
def add_dropout(x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Returns `x` + dropout(`y`)."""
    return x + drop_out(y, p)
