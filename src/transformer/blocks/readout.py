"""An encoder for classification, whose last layer is computed only at the positions that the pooler reads."""

from collections.abc import Iterable
from typing import cast

from jaxtyping import Float
from torch import Tensor

from transformer.blocks.attention import Bias, Mask
from transformer.blocks.encoder import Encoder, EncoderLayer
from transformer.blocks.residual import ResidualConnection


class ReadoutLayer(EncoderLayer):
    """An `EncoderLayer` that can compute its first positions alone, which still attend to all positions."""

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        src_mask: Mask | None = None,
        bias: Bias | None = None,
        n_queries: int | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Same as `EncoderLayer.forward`, but returns the first `n_queries` positions only; default: all."""
        if n_queries is None:
            return super().forward(x, src_mask, bias)
        attend, feed_forward = cast(Iterable[ResidualConnection], self.residual_connections)
        source = attend.norm(x) if attend.order == "pre" else x
        mask, bias = (term if term is None else term[..., :n_queries, :] for term in (src_mask, bias))
        x = attend(x[:, :n_queries], lambda x: self.self_attention_block(x, source, source, mask, bias))
        return feed_forward(x, self.feed_forward_block)


class ReadoutEncoder(Encoder):
    """An `Encoder` made of `ReadoutLayer` that can compute its first positions alone, e.g. that of the [CLS] token."""

    def forward(
        self, x: Float[Tensor, "B S D"], src_mask: Mask | None = None, n_queries: int | None = None
    ) -> Float[Tensor, "B T D"]:
        """Same as `Encoder.forward`, but returns the first `n_queries` positions only; default: all."""
        bias = self.self_attention_bias(x)
        *layers, last = self.layers
        for layer in layers:
            x = layer(x, src_mask, bias)
        return self.norm(last(x, src_mask, bias, n_queries))
