"""Decoder layers of plain blocks, a step of which is a few products and a few kernels between them."""

import math
from typing import Final, TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from transformer.blocks.attention import MultiHeadAttention
from transformer.blocks.cache import DecoderCache, LayerCache
from transformer.blocks.decoder import Decoder, DecoderLayer
from transformer.blocks.feed_forward import FeedForwardBlock
from transformer.blocks.normalization import LayerNormalization
from transformer.blocks.residual import ResidualConnection
from transformer.inference.gpu.cache import FusedCache
from transformer.kernels import triton_kernels

Model = TypeVar("Model", bound=nn.Module)
WIDTHS: Final = (16, 32, 64, 128)
"""Of heads that the kernels know."""


def fuse(model: Model) -> Model:
    """Rewrites the decoders of a model in place, for steps on a GPU, and returns it. What else it does is as before."""
    for name, child in model.named_children():
        if type(child) is Decoder and child.position_bias is None and all(map(_can_be_fused, child.layers)):
            setattr(model, name, FusedDecoder(child))
        else:
            fuse(child)
    return model


class FusedDecoder(Decoder):
    """As `Decoder`, whose rows stand at one position and may go on from one another.

    Args:
        decoder: of layers that can be fused.
    """

    def __init__(self, decoder: Decoder) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(vars(decoder))
        self.layers = nn.ModuleList(FusedDecoderLayer(cast(DecoderLayer, layer)) for layer in decoder.layers)

    def step(self, x: Float[Tensor, "B 1 D"], cache: DecoderCache) -> Float[Tensor, "B 1 D"]:
        """As `Decoder.step`, without a mask: the kernels look at the rows' positions."""
        for index, layer in enumerate(self.layers):
            x = cast(FusedDecoderLayer, layer).fused_step(x[:, 0], cache, index)[:, None]
        return self.norm(x)


class FusedDecoderLayer(DecoderLayer):
    """As `DecoderLayer`.

    Args:
        layer: that can be fused.
    """

    def __init__(self, layer: DecoderLayer) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(vars(layer))
        own = layer.self_attention_block
        self._weight = _joined(own, "weight")
        self._bias = _joined(own, "bias") if cast("Tensor | None", own.W_q.bias) is not None else None
        self._is_pre = self._around(0).order == "pre"

    def _around(self, number: int) -> ResidualConnection:
        return cast(ResidualConnection, self.residual_connections[number])

    def begin(self, encoder_output: Float[Tensor, "B S D"], capacity: int) -> LayerCache:
        """As `DecoderLayer.begin`."""
        cache = super().begin(encoder_output, capacity)
        own = cache.self_attention
        return LayerCache(FusedCache(own.keys, own.values).shared(), cache.cross_attention)

    def fused_step(self, x: Float[Tensor, "R D"], cache: DecoderCache, index: int) -> Float[Tensor, "R D"]:
        """As `DecoderLayer.step`, of rows that stand at one position."""
        target, source = cast(FusedCache, cache.layers[index].self_attention), cache.layers[index].cross_attention
        attention, network = self.self_attention_block, cast(FeedForwardBlock, self.feed_forward_block)
        y = self._normed(x)
        joint = F.linear(y, self._weight, self._bias)
        heads = triton_kernels.attend_written(
            joint, target.keys, target.values, cache.positions, _scale(attention), target.cache_indirection
        )  # fmt: skip
        x, y = self._added(0, x, attention.W_o(heads))
        attention = self.cross_attention_block
        heads = triton_kernels.attend_source(
            attention.W_q(y), source.keys, source.values, cache.src_mask, _scale(attention)
        )
        x, y = self._added(1, x, attention.W_o(heads))
        x, _ = self._added(2, x, network.linear_2(_activated(network, y)))
        return x

    def _normed(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """What the first sub-layer reads."""
        norm = cast(LayerNormalization, self._around(0).norm)
        return triton_kernels.add_norm(x, None, norm.alpha, norm.beta, norm.eps)[1] if self._is_pre else x

    def _added(
        self, number: int, x: Float[Tensor, "R D"], y: Float[Tensor, "R D"]
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R D"]]:
        """The residual sum after a sub-layer, and what the next sub-layer reads: with norms after each, the same."""
        if self._is_pre and number == 2:
            return x + y, x
        norm = cast(LayerNormalization, self._around(number + self._is_pre).norm)
        total, normed = triton_kernels.add_norm(x, y, norm.alpha, norm.beta, norm.eps, keeps=self._is_pre)
        return (total, normed) if self._is_pre else (normed, normed)


def _joined(attention: MultiHeadAttention, name: str) -> Tensor:
    """The maps to queries, keys and values as one, whose parts they become."""
    maps = [attention.W_q, attention.W_k, attention.W_v]
    joined = torch.cat([getattr(each, name).data for each in maps])
    for each, part in zip(maps, joined.chunk(3), strict=True):
        getattr(each, name).data = part
    return joined


def _activated(network: FeedForwardBlock, x: Float[Tensor, "R D"]) -> Float[Tensor, "R F"]:
    """The inner layer of a feed-forward network; a product on a GPU can end with ReLU by itself."""
    first, bias = network.linear_1, cast("Tensor | None", network.linear_1.bias)
    if network.activation is torch.relu_ and bias is not None:
        return torch._addmm_activation(bias, x, first.weight.t())  # pyright: ignore[reportPrivateImportUsage, reportPrivateUsage]
    return network.activation(first(x))


def _scale(attention: MultiHeadAttention) -> float:
    return 1 / math.sqrt(attention.d_k) if attention.scale is None else attention.scale


def _can_be_fused(layer: nn.Module) -> bool:
    """Whether a layer is of blocks that the kernels know."""
    if type(layer) is not DecoderLayer:
        return False
    attentions = layer.self_attention_block, layer.cross_attention_block
    return (
        all(type(each) is MultiHeadAttention and each.kv_heads == each.h and each.d_k in WIDTHS for each in attentions)
        and type(layer.feed_forward_block) is FeedForwardBlock
        and all(
            type(each) is ResidualConnection and type(each.norm) is LayerNormalization
            for each in layer.residual_connections
        )
    )
