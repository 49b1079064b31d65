"""Decoder layers of packed blocks."""

from typing import cast

from jaxtyping import Bool, Float
from torch import Tensor, nn

from transformer.blocks.attention import Bias
from transformer.blocks.cache import DecoderCache
from transformer.blocks.decoder import DecoderLayer
from transformer.kernels import LayerStep, cached
from transformer.packed.attention import PackedAttention
from transformer.packed.layers import PackedFeedForward, PackedNormalization, PackedResidual


class PackedDecoderLayer(DecoderLayer):
    """As `DecoderLayer`; a step is one call of the compiled kernels.

    Args:
        layer: whose blocks are packed, see `can_be`.
    """

    def __init__(self, layer: DecoderLayer) -> None:
        nn.Module.__init__(self)
        self.d_model = layer.d_model
        self.self_attention_block, self.cross_attention_block = layer.self_attention_block, layer.cross_attention_block
        self.feed_forward_block, self.residual_connections = layer.feed_forward_block, layer.residual_connections
        own, source = (
            cast(PackedAttention, each) for each in (layer.self_attention_block, layer.cross_attention_block)
        )
        feed_forward = cast(PackedFeedForward, layer.feed_forward_block)
        norms = [cast(PackedNormalization, residual.norm) for residual in self.residual_connections]
        self._step = LayerStep(
            [own.self_projection, own.W_o, source.W_q, source.W_o, feed_forward.linear_1, feed_forward.linear_2],
            [(norm.alpha, norm.beta, norm.eps) for norm in norms],
            is_pre=self.residual_connections[0].order == "pre",
        )

    @staticmethod
    def can_be(layer: DecoderLayer) -> bool:
        """Whether a layer is of the blocks that the kernel knows."""
        own, source = layer.self_attention_block, layer.cross_attention_block
        return (
            isinstance(own, PackedAttention)
            and isinstance(source, PackedAttention)
            and isinstance(layer.feed_forward_block, PackedFeedForward)
            and layer.feed_forward_block.fused is not None
            and all(isinstance(residual, PackedResidual) for residual in layer.residual_connections)
            and LayerStep.can_be(max(own.d_k, source.d_k))
        )

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
