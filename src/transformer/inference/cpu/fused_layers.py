"""Layers of packed blocks whose decoding step is one call of a compiled kernel."""

from typing import cast

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks.attention import Bias, Mask
from transformer.blocks.cache import DecoderCache, KeyValueCache, LayerCache
from transformer.blocks.causal import CausalDecoderLayer
from transformer.blocks.decoder import DecoderLayer
from transformer.inference.cpu.attention import PackedAttention
from transformer.inference.cpu.cache import IndirectKVCache, PackedCache
from transformer.inference.cpu.layers import PackedFeedForward, PackedNormalization, PackedResidual
from transformer.kernels import LayerStep

Layer = CausalDecoderLayer | DecoderLayer


class FusedLayer(nn.Module):
    """A layer with the blocks of another one, and a fused step.

    Args:
        layer: Layer of packed blocks for which `can_be_fused` is true.
    """

    def __init__(self, layer: Layer) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(vars(layer))
        self.fused_step = _layer_step(layer)


class PackedCausalDecoderLayer(FusedLayer, CausalDecoderLayer):
    """Same as `CausalDecoderLayer`, but with a fused step."""

    def begin(
        self, x: Float[Tensor, "B S D"], mask: Mask | None = None, bias: Bias | None = None
    ) -> tuple[Float[Tensor, "B S D"], KeyValueCache]:
        """Implements `CausalDecoderLayer.begin`; without a bias, the cache is an `IndirectKVCache`."""
        x, cache = super().begin(x, mask, bias)
        return x, cache if bias is not None else IndirectKVCache(cache.keys, cache.values)

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: KeyValueCache,
        positions: Int[Tensor, " B"],
        mask: Bool[Tensor, "B 1 1 T"],
        bias: Bias | None = None,
    ) -> Float[Tensor, "B 1 D"]:
        """Implements `CausalDecoderLayer.step`, up to each row's position; with a bias, it runs block by block."""
        if bias is not None:
            return super().step(x, cache, positions, mask, bias)
        return self.fused_step(x, cast(IndirectKVCache, cache).describe_self_attention(mask.size(3), positions))


class PackedDecoderLayer(FusedLayer, DecoderLayer):
    """Same as `DecoderLayer`, but with a fused step."""

    def begin(self, encoder_output: Float[Tensor, "B S D"]) -> LayerCache:
        """Implements `DecoderLayer.begin`; the self-attention cache is an `IndirectKVCache`."""
        cache = super().begin(encoder_output)
        target = cache.self_attention
        return LayerCache(IndirectKVCache(target.keys, target.values), cache.cross_attention)

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: DecoderCache,
        index: int,
        self_mask: Bool[Tensor, "B 1 1 T"],
        bias: Bias | None = None,
    ) -> Float[Tensor, "B 1 D"]:
        """Implements `DecoderLayer.step`. With a bias, it runs block by block."""
        target, source = cache.layers[index].self_attention, cache.layers[index].cross_attention
        if bias is not None:
            cast(IndirectKVCache, target).materialize()
            return super().step(x, cache, index, self_mask, bias)
        self_attention = cast(IndirectKVCache, target).describe_self_attention(cache.longest + 1, cache.positions)
        cross_attention = cast(PackedCache, source).describe_cross_attention(cache.src_mask, cache.width)
        return self.fused_step(x, self_attention, cross_attention)


def can_be_fused(layer: Layer) -> bool:
    """Whether the kernel supports the blocks of a layer."""
    network = layer.feed_forward_block
    return (
        all(isinstance(block, PackedAttention) and LayerStep.is_supported(block.d_k) for block in _attentions(layer))
        and isinstance(network, PackedFeedForward)
        and network.fused is not None
        and all(isinstance(residual, PackedResidual) for residual in layer.residual_connections)
    )


def _attentions(layer: Layer) -> list[nn.Module]:
    return [layer.self_attention_block, *([layer.cross_attention_block] if isinstance(layer, DecoderLayer) else [])]


def _layer_step(layer: Layer) -> LayerStep:
    self_attention, *cross_attention = (cast(PackedAttention, block) for block in _attentions(layer))
    network = cast(PackedFeedForward, layer.feed_forward_block)
    norms = [cast(PackedNormalization, residual.norm) for residual in layer.residual_connections]
    return LayerStep(
        [
            *(self_attention.self_projection, self_attention.W_o, network.linear_1, network.linear_2),
            *(matrix for block in cross_attention for matrix in (block.W_q, block.W_o)),
        ],
        [(norm.alpha, norm.beta, norm.eps) for norm in norms],
        is_pre=layer.residual_connections[0].order == "pre",
    )
