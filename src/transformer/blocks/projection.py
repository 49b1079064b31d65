"""From the decoder's output to a score for every token."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class ProjectionLayer(nn.Module):
    """The linear map to the vocabulary. It gives logits; the softmax of Sec. 3.4 belongs to the loss and the search.

    Args:
        d_model: width of the model.
        vocab_size: number of tokens to score.
        bias: False leaves it out, as `build_transformer` does where the matrix is shared with an embedding.

    Source: Vaswani et al. 2017, Sec. 3.4.
    """

    def __init__(self, d_model: int, vocab_size: int, *, bias: bool = True) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, vocab_size, bias=bias)

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Returns the logits of every position."""
        return self.proj(x)

    def output_subset(self, ids: Int[Tensor, " M"] | None) -> Callable[[Tensor], Tensor]:
        """The same map to some tokens alone, for a search; to all if none are given."""
        if ids is None:
            return self.proj
        chosen = {name: parameter[ids] for name, parameter in self.proj.named_parameters()}
        return partial(F.linear, **chosen)
