"""The encoder: a stack of self-attention and feed-forward layers.

With a causal mask, the same stack is the decoder of a language model (Liu et al. 2018, "Generating Wikipedia", Sec.
4.2.3). `begin` and `step` run it one token at a time.
"""

from collections.abc import Iterable
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks.attention import Bias, Mask, MultiHeadAttention
from transformer.blocks.cache import CausalCache, KeyValueCache
from transformer.blocks.normalization import LayerNormalization
from transformer.blocks.residual import Norm, ResidualConnection


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
        self.residual_connections = nn.ModuleList(
            ResidualConnection(d_model, dropout, order=order, norm=norm) for _ in range(2)
        )

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        src_mask: Mask | None = None,
        bias: Bias | None = None,
        n_queries: int | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the layer's output.

        Args:
            x: Input of the layer.
            src_mask: Positions that may be attended to, as in `MultiHeadAttention`.
            bias: Bias of the attention scores, as in `MultiHeadAttention`.
            n_queries: Number of leading positions to compute, which still attend to all positions; default: all.
        """
        attend, feed_forward = self.residual_connections
        if n_queries is None:
            x = attend(x, lambda x: self.self_attention_block(x, x, x, src_mask, bias))
        else:
            src_mask, bias = (term if term is None else term[..., :n_queries, :] for term in (src_mask, bias))
            x = attend(x, lambda x: self.self_attention_block(x[:, :n_queries], x, x, src_mask, bias), n_queries)
        return feed_forward(x, self.feed_forward_block)

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


class Encoder(nn.Module):
    """A stack of N encoder layers and a final norm.

    Args:
        layers: The layers, first to last.
        norm: Normalization of the last layer's output; default: a `LayerNormalization`. A pre-norm stack needs one,
            since its output would otherwise be an unnormalized sum. Use `nn.Identity()` for the paper's post-norm
            stack, whose last layer already ends in a norm.
        position_bias: Module that computes the attention bias shared by all layers, e.g. `RelativePositionBias`.

    Source: Vaswani et al. 2017, Sec. 3.1.
    """

    def __init__(
        self, layers: nn.ModuleList, norm: nn.Module | None = None, *, position_bias: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.layers = layers
        self.norm = LayerNormalization(cast(EncoderLayer, layers[0]).d_model) if norm is None else norm
        self.position_bias = position_bias

    def forward(
        self, x: Float[Tensor, "B S D"], src_mask: Mask | None = None, n_queries: int | None = None
    ) -> Float[Tensor, "B T D"]:
        """Returns the encoded source.

        Args:
            x: Embedded source.
            src_mask: Positions that may be attended to, as in `MultiHeadAttention`.
            n_queries: Number of leading positions to compute in the last layer, if only those are used; default: all.
        """
        bias = self.self_attention_bias(x)
        *layers, last = self.layers
        for layer in layers:
            x = layer(x, src_mask, bias)
        return self.norm(last(x, src_mask, bias, n_queries))

    def self_attention_bias(self, x: Float[Tensor, "B T D"]) -> Bias | None:
        """Returns the attention bias between the positions 0 .. T - 1 of `x`."""
        if self.position_bias is None:
            return None
        return self.position_bias(torch.arange(x.size(1), device=x.device)[None], x.size(1))

    def begin(
        self, x: Float[Tensor, "B S D"], mask: Mask | None = None
    ) -> tuple[Float[Tensor, "B S D"], list[KeyValueCache]]:
        """Same as `forward`, but also returns the keys and values of every layer."""
        caches: list[KeyValueCache] = []
        bias = self.self_attention_bias(x)
        for layer in cast(Iterable[EncoderLayer], self.layers):
            x, cache = layer.begin(x, mask, bias)
            caches.append(cache)
        return self.norm(x), caches

    def step(self, x: Float[Tensor, "B 1 D"], cache: CausalCache) -> Float[Tensor, "B 1 D"]:
        """Same as `forward`, but for one new position per row, whose keys and values are added to `cache`."""
        mask, bias = cache.self_mask, None
        if self.position_bias is not None:
            bias = self.position_bias(cache.positions[:, None], mask.size(-1))
        for layer, layer_cache in zip(cast(Iterable[EncoderLayer], self.layers), cache.layers, strict=True):
            x = layer.step(x, layer_cache, cache.positions, mask, bias)
        return self.norm(x)
