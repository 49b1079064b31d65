"""Layers of packed blocks, a step of which is one call of the compiled kernels."""

from typing import cast

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks.attention import Bias
from transformer.blocks.cache import DecoderCache, KeyValueCache
from transformer.blocks.decoder import DecoderLayer
from transformer.blocks.encoder import EncoderLayer
from transformer.kernels import LayerStep, cached
from transformer.packed.attention import PackedAttention
from transformer.packed.layers import PackedFeedForward, PackedNormalization, PackedResidual

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
        return self._step(x, cached(cache.keys, cache.values, mask.size(3), 1, last=positions))


class PackedDecoderLayer(Stepped, DecoderLayer):
    """As `DecoderLayer`."""

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: DecoderCache,
        index: int,
        self_mask: Bool[Tensor, "B 1 1 T"],
        bias: Bias | None = None,
    ) -> Float[Tensor, "B 1 D"]:
        """As `DecoderLayer.step`; with a bias, block by block."""
        if bias is not None:
            return super().step(x, cache, index, self_mask, bias)
        target, source = cache.layers[index].self_attention, cache.layers[index].cross_attention
        own = cached(target.keys, target.values, cache.longest + 1, 1, last=cache.positions)
        to_source = cached(source.keys, source.values, cache.src_mask.size(3), cache.width, mask=cache.src_mask)
        return self._step(x, own, to_source)


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
