"""The Vision Transformer, and its builder."""

from functools import partial
from typing import Final

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from transformer.blocks import (
    ACTIVATIONS,
    FeedForwardBlock,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    PatchEmbedding,
    ReadoutEncoder,
    ReadoutLayer,
    initialize_xavier_uniform,
)
from transformer.blocks.initialization import INIT_STD
from transformer.errors import ConfigError
from transformer.models.kinds import required_part
from transformer.models.vit.config import VitConfig


class Vit(nn.Module):
    """An encoder of images, and its heads.

    Args:
        patches: Embedding of image patches.
        positions: Learned positions of the class token and the patches.
        encoder: Pre-norm encoder without a mask.
        pooler: Transformation of the first position, or None.
        label_head: Projection to one logit per label, or None.
        image_size: Height and width of an image in pixels.

    Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", Sec. 3.1, Eq. 1-4.
    """

    def __init__(
        self,
        patches: PatchEmbedding,
        positions: LearnedPositions,
        encoder: ReadoutEncoder,
        pooler: nn.Sequential | None,
        label_head: nn.Linear | None,
        image_size: tuple[int, int],
    ) -> None:
        super().__init__()
        self.patches = patches
        self.first = nn.Parameter(torch.zeros(positions.embedding.embedding_dim))
        self.positions = positions
        self.encoder = encoder
        self.pooler = pooler
        self.label_head = label_head
        self.image_size = image_size

    label_positions: Final = 1
    """Number of leading positions that the classification head reads."""

    def encode(self, images: Float[Tensor, "B C height width"], n_queries: int | None = None) -> Float[Tensor, "B T D"]:
        """Returns the encoder's output: one vector for the class token, then one per patch.

        Args:
            images: Normalized pixels.
            n_queries: Number of leading positions to compute; default: all.

        Raises:
            ConfigError: The images have another size, for which the learned positions would be wrong.
        """
        if (size := tuple(images.shape[2:])) != self.image_size:
            raise ConfigError(f"images of {size} pixels, but the model's are {self.image_size}; resize them")
        patches = self.patches(images)
        start = self.first.expand(len(patches), 1, -1)
        return self.encoder(self.positions(torch.cat([start, patches], dim=1)), None, n_queries)

    def forward(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B S D"]:
        """Same as `encode`."""
        return self.encode(images)

    def pooled(self, encoded: Float[Tensor, "B S D"]) -> Float[Tensor, "B pooled"]:
        """Returns the pooler's vector of each image."""
        return required_part(self.pooler, "pooler")(encoded[:, 0])

    def label_logits(
        self, images: Float[Tensor, "B C height width"], mask: Bool[Tensor, "B 1 1 S"] | None = None
    ) -> Float[Tensor, "B labels"]:
        """Returns one logit per label; `mask` is ignored because images have no padding."""
        del mask
        return required_part(self.label_head, "label head")(self.encode(images, self.label_positions)[:, 0])


def interpolate_positions(
    table: Float[Tensor, "S D"], grid: tuple[int, int], new_grid: tuple[int, int]
) -> Float[Tensor, "T D"]:
    """Interpolates learned positions bilinearly, for images with another number of patches.

    Args:
        table: Position of the class token, which is kept, and positions of the patches, row by row.
        grid: Rows and columns of patches in the table.
        new_grid: Rows and columns of patches in the result.

    Source: Dosovitskiy et al. 2021, Sec. 3.2.
    """
    patches = table[1:].T.unflatten(1, grid)[None]  # 1 D rows columns
    resized = F.interpolate(patches, size=new_grid, mode="bilinear")
    return torch.cat([table[:1], resized[0].flatten(1).T])


def build(config: VitConfig) -> Vit:
    """Builds a freshly initialized model."""
    d_model, norm = config.d_model, partial(LayerNormalization, eps=config.eps)
    bias = "all" if config.attention_bias else "output"

    def layer() -> ReadoutLayer:
        attention = MultiHeadAttention(d_model, config.h, config.attention_dropout, bias=bias)
        network = FeedForwardBlock(d_model, config.d_ff, 0.0, activation=ACTIVATIONS[config.activation])
        return ReadoutLayer(d_model, attention, network, config.dropout, norm=norm)

    rows, columns = config.grid
    after = {"tanh": nn.Tanh(), "relu": nn.ReLU(), "gelu": nn.GELU()}[config.pooler_activation]
    model = Vit(
        PatchEmbedding(d_model, config.patch_size, config.channels),
        LearnedPositions(d_model, rows * columns + 1, config.dropout),
        ReadoutEncoder(nn.ModuleList(layer() for _ in range(config.N)), norm(d_model)),
        nn.Sequential(nn.Linear(d_model, config.pooler_size), after) if config.pooler_size else None,
        nn.Linear(d_model, len(config.labels)) if config.labels else None,
        config.image_size,
    )
    _initialize(model)
    return model


def _initialize(model: Vit) -> None:
    """Initializes as the authors' code does.

    Linear layers use Xavier's initialization, the patch projection scales with its inputs, positions are small, and
    biases and the classification head are 0.
    """
    initialize_xavier_uniform(model)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or name.startswith("label_head"):
            nn.init.zeros_(parameter)
    nn.init.normal_(model.patches.projection.weight, std=model.patches.projection.weight[0].numel() ** -0.5)
    nn.init.normal_(model.positions.embedding.weight, std=INIT_STD)
