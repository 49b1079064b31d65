"""The output projection from the decoder to the vocabulary (LM head)."""

from jaxtyping import Float
from torch import Tensor, nn


class ProjectionLayer(nn.Module):
    """The output projection: a linear layer to the vocabulary (LM head).

    It computes logits; the softmax of Sec. 3.4 is applied by the loss and the search.

    Args:
        d_model: Width of the model.
        vocab_size: Number of tokens to score.
        bias: Whether the layer has a bias. `build_transformer` omits it if the matrix is shared with an embedding.

    Source: Vaswani et al. 2017, Sec. 3.4.
    """

    def __init__(self, d_model: int, vocab_size: int, *, bias: bool = True) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, vocab_size, bias=bias)

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Returns the logits at every position."""
        return self.proj(x)
