"""The decoder: self-attention over the target so far, cross-attention over the source, feed-forward network."""

from collections.abc import Iterable
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from transformer.blocks.attention import Bias, Mask, MultiHeadAttention
from transformer.blocks.cache import DecoderCache, IncrementalState, KeyValueCache, LayerCache
from transformer.blocks.normalization import LayerNormalization
from transformer.blocks.residual import Norm, residual_connections
from transformer.blocks.stack import LayerStack


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention and a feed-forward network, each inside a residual connection.

    Args:
        d_model: Width of the model.
        self_attention_block: Attention over the layer's own input; `tgt_mask` hides later positions.
        cross_attention_block: Attention with queries from the decoder and keys and values from the encoder.
        feed_forward_block: The position-wise network.
        dropout: Dropout probability of the residual connections.
        order: Position of the norms, "pre" or "post"; see `ResidualConnection`.
        norm: Function that builds the normalization for a given width.

    Source: Vaswani et al. 2017, Sec. 3.1 and Fig. 1, right.
    """

    def __init__(
        self,
        d_model: int,
        self_attention_block: MultiHeadAttention,
        cross_attention_block: MultiHeadAttention,
        feed_forward_block: nn.Module,
        dropout: float,
        *,
        order: str = "pre",
        norm: Norm = LayerNormalization,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.self_attention_block = self_attention_block
        self.cross_attention_block = cross_attention_block
        self.feed_forward_block = feed_forward_block
        self.residual_connections = residual_connections(3, d_model, dropout, order, norm)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        encoder_output: Float[Tensor, "B S D"],
        src_mask: Mask | None = None,
        tgt_mask: Mask | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the layer's output; for the masks and the self-attention bias, see `MultiHeadAttention`."""
        attend, attend_source, feed_forward = self.residual_connections
        x = attend(x, lambda x: self.self_attention_block(x, x, x, tgt_mask, bias))
        x = attend_source(x, lambda x: self.cross_attention_block(x, encoder_output, encoder_output, src_mask))
        return feed_forward(x, self.feed_forward_block)

    def begin(self, encoder_output: Float[Tensor, "B S D"]) -> LayerCache:
        """Returns an empty cache of the target, together with the keys and values of the source."""
        source = self.cross_attention_block.keys_values(encoder_output, encoder_output)
        return LayerCache(source.without_positions(), source)

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: DecoderCache,
        index: int,
        self_mask: Bool[Tensor, "B 1 1 T"],
        bias: Bias | None = None,
    ) -> Float[Tensor, "B 1 D"]:
        """Same as `forward`, but for one new position per row; `index` is the index of this layer in the cache."""
        attend, attend_source, feed_forward = self.residual_connections
        target, source = cache.layers[index].self_attention, cache.layers[index].cross_attention
        x = attend(x, lambda x: self.self_attention_block.step(x, target, cache.positions, self_mask, bias))
        x = attend_source(x, lambda x: self._attend_source(x, source, cache))
        return feed_forward(x, self.feed_forward_block)

    def _attend_source(
        self, x: Float[Tensor, "B 1 D"], source: KeyValueCache, cache: DecoderCache
    ) -> Float[Tensor, "B 1 D"]:
        # The rows of a sentence become the positions of one target, so that they share the keys and values.
        by_sentence = x.unflatten(0, (-1, cache.width))[:, :, 0]  # N W D
        return self.cross_attention_block.attend(by_sentence, source, cache.src_mask).flatten(0, 1)[:, None]


class Decoder(LayerStack):
    """A stack of N decoder layers and a final norm; for the arguments, see `LayerStack`.

    Source: Vaswani et al. 2017, Sec. 3.1.
    """

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        encoder_output: Float[Tensor, "B S D"],
        src_mask: Mask | None = None,
        tgt_mask: Mask | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the decoder's output at every target position; for the masks, see `MultiHeadAttention`."""
        bias = self.self_attention_bias(x)
        for layer in self.layers:
            x = layer(x, encoder_output, src_mask, tgt_mask, bias)
        return self.norm(x)

    def begin(self, encoder_output: Float[Tensor, "B S D"], src_mask: Bool[Tensor, "B 1 1 S"]) -> IncrementalState:
        """Returns the state for decoding, without target positions; see `DecoderLayer.begin`."""
        layers = [layer.begin(encoder_output) for layer in cast(Iterable[DecoderLayer], self.layers)]
        positions = torch.zeros(len(encoder_output), dtype=torch.long, device=encoder_output.device)
        return DecoderCache(layers, src_mask, positions)

    def step(self, x: Float[Tensor, "B 1 D"], state: IncrementalState) -> Float[Tensor, "B 1 D"]:
        """Same as `forward`, but for one new position per row, whose keys and values are added to the state."""
        cache = cast(DecoderCache, state)
        self_mask, bias = cache.self_mask, self.step_bias(cache)
        for index, layer in enumerate(cast(Iterable[DecoderLayer], self.layers)):
            x = layer.step(x, cache, index, self_mask, bias)
        return self.norm(x)
