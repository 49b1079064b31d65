"""Token ids to vectors."""

import math

from jaxtyping import Float, Int
from torch import Tensor, nn


class InputEmbedding(nn.Module):
    """Looks up one learned vector a token and multiplies it by sqrt(d_model).

    The paper does not explain the factor. Vectors that start with a variance of 1 / d_model, see
    `initialize_embeddings`, come out with a variance of 1, about the size of the positional encoding, whose elements
    have a mean square of 1/2.

    Args:
        d_model: width of the model.
        vocab_size: number of token ids; ids are 0 .. vocab_size - 1.
        scale: in place of sqrt(d_model).

    Source: Vaswani et al. 2017, Sec. 3.4.
    """

    def __init__(self, d_model: int, vocab_size: int, *, scale: float | None = None) -> None:
        super().__init__()
        self.d_model = d_model
        self.vocab_size = vocab_size
        self.scale = math.sqrt(d_model) if scale is None else scale
        self.embedding = nn.Embedding(vocab_size, d_model)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T {self.d_model}"]:
        """Returns the scaled vectors of `tokens`."""
        return self.embedding(tokens) * self.scale
