"""Layers of packed blocks, a step of which is one call of the compiled kernels."""

from typing import cast

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks.attention import Bias, Mask
from transformer.blocks.cache import DecoderCache, KeyValueCache, LayerCache
from transformer.blocks.decoder import DecoderLayer
from transformer.blocks.encoder import EncoderLayer
from transformer.inference.cpu.attention import PackedAttention
from transformer.inference.cpu.cache import IndirectKVCache, PackedCache
from transformer.inference.cpu.layers import PackedFeedForward, PackedNormalization, PackedResidual
from transformer.kernels import LayerStep

Layer = EncoderLayer | DecoderLayer


class Stepped(nn.Module):
    """What a layer has, and its step.

    Args:
        layer: whose blocks are packed, see `can_be_stepped`.
    """

    def __init__(self, layer: Layer) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(vars(layer))
        self._step = _layer_step(layer)


class PackedEncoderLayer(Stepped, EncoderLayer):
    """As `EncoderLayer`."""

    def begin(
        self, x: Float[Tensor, "B S D"], mask: Mask | None = None, bias: Bias | None = None
    ) -> tuple[Float[Tensor, "B S D"], KeyValueCache]:
        """As `EncoderLayer.begin`."""
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
        """As `EncoderLayer.step`, each row attending up to its own position; with a bias, block by block."""
        if bias is not None:
            return super().step(x, cache, positions, mask, bias)
        return self._step(x, cast(IndirectKVCache, cache).as_target(mask.size(3), positions))


class PackedDecoderLayer(Stepped, DecoderLayer):
    """As `DecoderLayer`."""

    def begin(self, encoder_output: Float[Tensor, "B S D"], capacity: int) -> LayerCache:
        """As `DecoderLayer.begin`."""
        cache = super().begin(encoder_output, capacity)
        own = cache.self_attention
        return LayerCache(IndirectKVCache(own.keys, own.values), cache.cross_attention)

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: DecoderCache,
        index: int,
        self_mask: Bool[Tensor, "B 1 1 T"],
        bias: Bias | None = None,
    ) -> Float[Tensor, "B 1 D"]:
        """As `DecoderLayer.step`; with a bias, block by block."""
        target, source = cache.layers[index].self_attention, cache.layers[index].cross_attention
        if bias is not None:
            cast(IndirectKVCache, target).materialize()
            return super().step(x, cache, index, self_mask, bias)
        own = cast(IndirectKVCache, target).as_target(cache.longest + 1, cache.positions)
        return self._step(x, own, cast(PackedCache, source).as_source(cache.src_mask, cache.width))


def can_be_stepped(layer: Layer) -> bool:
    """Whether a layer is of the blocks that the kernel knows."""
    network = layer.feed_forward_block
    return (
        all(isinstance(each, PackedAttention) and LayerStep.can_be(each.d_k) for each in _attentions(layer))
        and isinstance(network, PackedFeedForward)
        and network.fused is not None
        and all(isinstance(residual, PackedResidual) for residual in layer.residual_connections)
    )


def _attentions(layer: Layer) -> list[nn.Module]:
    return [layer.self_attention_block, *([layer.cross_attention_block] if isinstance(layer, DecoderLayer) else [])]


def _layer_step(layer: Layer) -> LayerStep:
    own, *sources = (cast(PackedAttention, each) for each in _attentions(layer))
    network = cast(PackedFeedForward, layer.feed_forward_block)
    norms = [cast(PackedNormalization, residual.norm) for residual in layer.residual_connections]
    return LayerStep(
        [
            *(own.self_projection, own.W_o, network.linear_1, network.linear_2),
            *(matrix for source in sources for matrix in (source.W_q, source.W_o)),
        ],
        [(norm.alpha, norm.beta, norm.eps) for norm in norms],
        is_pre=layer.residual_connections[0].order == "pre",
    )
