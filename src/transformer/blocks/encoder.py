"""The encoder: a stack of self-attention and feed-forward layers."""

from jaxtyping import Float
from torch import Tensor, nn

from transformer.blocks.attention import Bias, Mask, MultiHeadAttention
from transformer.blocks.normalization import LayerNormalization
from transformer.blocks.residual import Norm, residual_connections
from transformer.blocks.stack import LayerStack


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each inside a residual connection.

    Args:
        d_model: Width of the model.
        self_attention_block: Attention over the layer's own input.
        feed_forward_block: The position-wise network.
        dropout: Dropout probability of the residual connections.
        order: Position of the norms, "pre" or "post"; see `ResidualConnection`.
        norm: Function that builds the normalization for a given width.

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
        self.residual_connections = residual_connections(2, d_model, dropout, order, norm)

    def forward(
        self, x: Float[Tensor, "B S D"], src_mask: Mask | None = None, bias: Bias | None = None
    ) -> Float[Tensor, "B S D"]:
        """Returns the layer's output; for mask and bias, see `MultiHeadAttention`."""
        attend, feed_forward = self.residual_connections
        x = attend(x, lambda x: self.self_attention_block(x, x, x, src_mask, bias))
        return feed_forward(x, self.feed_forward_block)


class Encoder(LayerStack):
    """A stack of N encoder layers and a final norm; for the arguments, see `LayerStack`.

    Source: Vaswani et al. 2017, Sec. 3.1.
    """

    def forward(self, x: Float[Tensor, "B S D"], src_mask: Mask | None = None) -> Float[Tensor, "B S D"]:
        """Returns the encoded source.

        Args:
            x: Embedded source.
            src_mask: Positions that may be attended to, as in `MultiHeadAttention`.
        """
        bias = self.self_attention_bias(x)
        for layer in self.layers:
            x = layer(x, src_mask, bias)
        return self.norm(x)
