"""The encoder: a stack of self-attention and feed-forward layers.

With a mask that hides what comes later, the same stack is the decoder of a language model (Liu et al. 2018, "Generating
Wikipedia", Sec. 4.2.3), which `begin` and `step` run one token at a time.
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

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        src_mask: Mask | None = None,
        bias: Bias | None = None,
        first: int | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the layer's output.

        Args:
            x: the layer's input.
            src_mask: as in `MultiHeadAttention`.
            bias: likewise.
            first: how many positions to compute, which still attend to all; all if not given.
        """
        attend, feed_forward = self.residual_connections
        if first is None:
            x = attend(x, lambda x: self.self_attention_block(x, x, x, src_mask, bias))
        else:
            src_mask, bias = (each if each is None else each[..., :first, :] for each in (src_mask, bias))
            x = attend(x, lambda x: self.self_attention_block(x[:, :first], x, x, src_mask, bias), first)
        return feed_forward(x, self.feed_forward_block)

    def begin(
        self, x: Float[Tensor, "B S D"], mask: Mask | None = None, bias: Bias | None = None
    ) -> tuple[Float[Tensor, "B S D"], KeyValueCache]:
        """As `forward`, with the keys and values that later steps need."""
        attend, feed_forward = self.residual_connections
        kept: list[KeyValueCache] = []

        def attention(x: Tensor) -> Tensor:
            kept.append(self.self_attention_block.keys_values(x, x))
            return self.self_attention_block.attend(x, kept[0], mask, bias)

        return feed_forward(attend(x, attention), self.feed_forward_block), kept[0]

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: KeyValueCache,
        positions: Int[Tensor, " B"],
        mask: Bool[Tensor, "B 1 1 T"],
        bias: Bias | None = None,
    ) -> Float[Tensor, "B 1 D"]:
        """As `forward` for one new position a row, see `MultiHeadAttention.step`."""
        attend, feed_forward = self.residual_connections
        x = attend(x, lambda x: self.self_attention_block.step(x, cache, positions, mask, bias))
        return feed_forward(x, self.feed_forward_block)


class Encoder(nn.Module):
    """N encoder layers and a final norm.

    Args:
        layers: the layers, first to last.
        norm: applied to the last layer's output. None makes the `LayerNormalization` that a pre-norm stack needs,
            whose output would otherwise be an unnormalized sum; give `nn.Identity()` for the paper's post-norm
            stack, which already ends in one.
        position_bias: gives the bias of attention that all layers share, e.g. `RelativePositionBias`.

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
        self, x: Float[Tensor, "B S D"], src_mask: Mask | None = None, first: int | None = None
    ) -> Float[Tensor, "B T D"]:
        """Returns the encoded source.

        Args:
            x: the embedded source.
            src_mask: as in `MultiHeadAttention`.
            first: how many positions of the last layer to compute, where nobody reads more; all if not given.
        """
        bias = self.bias_from_start(x)
        *layers, last = self.layers
        for layer in layers:
            x = layer(x, src_mask, bias)
        return self.norm(last(x, src_mask, bias, first))

    def bias_from_start(self, x: Float[Tensor, "B T D"]) -> Bias | None:
        """The bias of attention between the positions of `x`, which are 0 .. T - 1."""
        if self.position_bias is None:
            return None
        return self.position_bias(torch.arange(x.size(1), device=x.device)[None], x.size(1))

    def begin(
        self, x: Float[Tensor, "B S D"], mask: Mask | None = None
    ) -> tuple[Float[Tensor, "B S D"], list[KeyValueCache]]:
        """As `forward`, with the keys and values of every layer."""
        caches: list[KeyValueCache] = []
        bias = self.bias_from_start(x)
        for layer in cast(Iterable[EncoderLayer], self.layers):
            x, cache = layer.begin(x, mask, bias)
            caches.append(cache)
        return self.norm(x), caches

    def step(self, x: Float[Tensor, "B 1 D"], cache: CausalCache) -> Float[Tensor, "B 1 D"]:
        """As `forward` for one new position a row, whose keys and values are added to `cache`."""
        mask, bias = cache.self_mask, None
        if self.position_bias is not None:
            bias = self.position_bias(cache.positions[:, None], mask.size(-1))
        for layer, own in zip(cast(Iterable[EncoderLayer], self.layers), cache.layers, strict=True):
            x = layer.step(x, own, cache.positions, mask, bias)
        return self.norm(x)
