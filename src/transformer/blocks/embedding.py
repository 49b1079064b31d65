"""Embeddings of tokens and of image patches."""

import math

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class InputEmbedding(nn.Module):
    """Looks up one learned vector per token and multiplies it by sqrt(d_model).

    The paper does not explain the factor. Embeddings are initialized with variance 1 / d_model (see
    `initialize_embeddings`), so the factor gives them variance 1. That is about the magnitude of the positional
    encoding, whose elements have a mean square of 1/2.

    Args:
        d_model: Width of the model.
        vocab_size: Number of token ids; ids are 0 .. vocab_size - 1.
        scale: Factor instead of sqrt(d_model).

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
    """Splits images into patches and projects each patch to a vector.

    The parameters of the projection are stored as those of a convolution whose stride equals its kernel size, as in
    published models.

    Args:
        d_model: Width of the model.
        patch: Height and width of a patch in pixels.
        channels: Number of channels of the images.

    Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", Sec. 3.1, Eq. 1.
    """

    def __init__(self, d_model: int, patch: tuple[int, int], channels: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(channels, d_model, kernel_size=patch, stride=patch)

    def forward(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B S D"]:
        """Returns one vector per patch, row by row from the top left; pixels outside whole patches are ignored."""
        height, width = self.projection.kernel_size
        cut = images.unfold(2, height, height).unfold(3, width, width)  # B C rows columns height width
        flat = cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        return F.linear(flat, self.projection.weight.flatten(1), self.projection.bias)
