"""The decoder of a decoder-only model: the encoder's layers under a causal mask, which generate token by token.

Source: Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", Sec. 4.2.3.
"""

from collections.abc import Iterable
from typing import cast

from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.blocks.attention import Bias, Mask
from transformer.blocks.cache import CausalCache, IncrementalState, KeyValueCache
from transformer.blocks.encoder import Encoder, EncoderLayer
from transformer.blocks.masks import causal_mask


class CausalDecoderLayer(EncoderLayer):
    """An `EncoderLayer` that can also compute one new position at a time."""

    def begin(
        self, x: Float[Tensor, "B S D"], mask: Mask | None = None, bias: Bias | None = None
    ) -> tuple[Float[Tensor, "B S D"], KeyValueCache]:
        """Same as `forward`, but also returns the keys and values that later steps need."""
        attend, feed_forward = self.residual_connections
        caches: list[KeyValueCache] = []

        def attention(x: Tensor) -> Tensor:
            caches.append(self.self_attention_block.keys_values(x, x))
            return self.self_attention_block.attend(x, caches[0], mask, bias)

        return feed_forward(attend(x, attention), self.feed_forward_block), caches[0]

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: KeyValueCache,
        positions: Int[Tensor, " B"],
        mask: Bool[Tensor, "B 1 1 T"],
        bias: Bias | None = None,
    ) -> Float[Tensor, "B 1 D"]:
        """Same as `forward`, but for one new position per row; see `MultiHeadAttention.step`."""
        attend, feed_forward = self.residual_connections
        x = attend(x, lambda x: self.self_attention_block.step(x, cache, positions, mask, bias))
        return feed_forward(x, self.feed_forward_block)


class CausalDecoder(Encoder):
    """A stack of `CausalDecoderLayer`s and a final norm; `forward` needs a causal mask."""

    def begin(self, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]) -> IncrementalState:
        """Reads prompts, with padding at the end, and returns the state for decoding.

        Args:
            x: Embedded prompts; they may be empty.
            lengths: Number of tokens of each prompt.
        """
        is_empty = not x.size(1)
        x = x.new_zeros(len(x), 1, x.size(2)) if is_empty else x  # determines the shapes and dtypes of the caches
        mask, bias, caches = causal_mask(x.size(1), x.device), self.self_attention_bias(x), list[KeyValueCache]()
        for layer in cast(Iterable[CausalDecoderLayer], self.layers):
            x, cache = layer.begin(x, mask, bias)
            caches.append(cache.without_positions() if is_empty else cache)
        return CausalCache(caches, lengths, int(lengths.max()))

    def step(self, x: Float[Tensor, "B 1 D"], state: IncrementalState) -> Float[Tensor, "B 1 D"]:
        """Same as `forward`, but for one new position per row, whose keys and values are added to the state."""
        cache = cast(CausalCache, state)
        mask, bias = cache.self_mask, self.step_bias(cache)
        for layer, layer_cache in zip(cast(Iterable[CausalDecoderLayer], self.layers), cache.layers, strict=True):
            x = layer.step(x, layer_cache, cache.positions, mask, bias)
        return self.norm(x)
