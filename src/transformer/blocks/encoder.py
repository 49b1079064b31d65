"""The encoder: a stack of self-attention and feed-forward layers."""

from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from transformer.blocks.attention import Mask, MultiHeadAttention
from transformer.blocks.normalization import LayerNormalization
from transformer.blocks.residual import Norm, ResidualConnection


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each inside a residual connection.

    Args:
        d_model: width of the model.
        self_attention_block: attends over the layer's own input.
        feed_forward_block: the position-wise network.
        dropout: of the residual connections.
        order: where the norms stand, see `ResidualConnection`.
        norm: makes the normalization of a given width.

    Source: Vaswani et al. 2017, Sec. 3.1 and Fig. 1, left.
    """

    def __init__(
        self,
        d_model: int,
        self_attention_block: MultiHeadAttention,
        feed_forward_block: nn.Module,
        dropout: float,
        *,
        order: str = "pre",
        norm: Norm = LayerNormalization,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.self_attention_block = self_attention_block
        self.feed_forward_block = feed_forward_block
        self.residual_connections = nn.ModuleList(
            ResidualConnection(d_model, dropout, order=order, norm=norm) for _ in range(2)
        )

    def forward(self, x: Float[Tensor, "B S D"], src_mask: Mask | None = None) -> Float[Tensor, "B S D"]:
        """Returns the layer's output; `src_mask` as in `MultiHeadAttention`."""
        attend, feed_forward = self.residual_connections
        x = attend(x, lambda x: self.self_attention_block(x, x, x, src_mask))
        return feed_forward(x, self.feed_forward_block)


class Encoder(nn.Module):
    """N encoder layers and a final norm.

    Args:
        layers: the layers, first to last.
        norm: applied to the last layer's output. None makes the `LayerNormalization` that a pre-norm stack needs,
            whose output would otherwise be an unnormalized sum; give `nn.Identity()` for the paper's post-norm
            stack, which already ends in one.

    Source: Vaswani et al. 2017, Sec. 3.1.
    """

    def __init__(self, layers: nn.ModuleList, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = layers
        self.norm = LayerNormalization(cast(EncoderLayer, layers[0]).d_model) if norm is None else norm

    def forward(self, x: Float[Tensor, "B S D"], src_mask: Mask | None = None) -> Float[Tensor, "B S D"]:
        """Returns the encoded source; `src_mask` as in `MultiHeadAttention`."""
        for layer in self.layers:
            x = layer(x, src_mask)
        return self.norm(x)
