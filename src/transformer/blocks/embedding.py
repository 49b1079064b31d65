"""Token ids to vectors, and images to vectors."""

import math

import torch.nn.functional as F
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


class PatchEmbedding(nn.Module):
    """Cuts images into patches and maps each to a vector.

    The map's parameters are those of a convolution whose stride is its size, as in published models.

    Args:
        d_model: width of the model.
        patch: height and width of a patch in pixels.
        channels: of the images.

    Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", Sec. 3.1, Eq. 1.
    """

    def __init__(self, d_model: int, patch: tuple[int, int], channels: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(channels, d_model, kernel_size=patch, stride=patch)

    def forward(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B S D"]:
        """Returns one vector a patch, row by row from the top left; what no whole patch covers is left out."""
        height, width = self.projection.kernel_size
        cut = images.unfold(2, height, height).unfold(3, width, width)  # B C rows columns height width
        flat = cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        return F.linear(flat, self.projection.weight.flatten(1), self.projection.bias)
