"""Decoder layers whose step is a few matrix products with fused kernels between them."""

import math
from typing import Final, TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from transformer.blocks.attention import MultiHeadAttention
from transformer.blocks.cache import DecoderCache, IncrementalState, LayerCache
from transformer.blocks.decoder import Decoder, DecoderLayer
from transformer.blocks.feed_forward import FeedForwardBlock
from transformer.blocks.normalization import LayerNormalization
from transformer.blocks.residual import ResidualConnection
from transformer.inference.gpu.cache import FusedCache
from transformer.kernels import triton_kernels

Model = TypeVar("Model", bound=nn.Module)
HEAD_DIMS: Final = (16, 32, 64, 128)
"""Dimensions of heads that the kernels support."""


def fuse(model: Model) -> Model:
    """Converts the decoders of a model in place for decoding on a GPU, and returns it; all else stays unchanged."""
    for name, child in model.named_children():
        if type(child) is Decoder and child.position_bias is None and all(map(_can_be_fused, child.layers)):
            setattr(model, name, FusedDecoder(child))
        else:
            fuse(child)
    return model


class FusedDecoder(Decoder):
    """Same as `Decoder`, but with fused steps; all rows must be at the same position.

    Args:
        decoder: Decoder whose layers can be fused.
    """

    def __init__(self, decoder: Decoder) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(vars(decoder))
        self.layers = nn.ModuleList(FusedDecoderLayer(cast(DecoderLayer, layer)) for layer in decoder.layers)

    def step(self, x: Float[Tensor, "B 1 D"], state: IncrementalState) -> Float[Tensor, "B 1 D"]:
        """Implements `Decoder.step` without a mask: the kernels read the rows' positions."""
        cache = cast(DecoderCache, state)
        for index, layer in enumerate(self.layers):
            x = cast(FusedDecoderLayer, layer).fused_step(x[:, 0], cache, index)[:, None]
        return self.norm(x)


class FusedDecoderLayer(DecoderLayer):
    """Same as `DecoderLayer`, but with a fused step.

    Args:
        layer: Layer that can be fused.
    """

    def __init__(self, layer: DecoderLayer) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(vars(layer))
        attention = layer.self_attention_block
        self._qkv_weight = _fuse_qkv(attention, "weight")
        has_bias = cast("Tensor | None", attention.W_q.bias) is not None
        self._qkv_bias = _fuse_qkv(attention, "bias") if has_bias else None
        self._is_pre = self._residual(0).order == "pre"

    def _residual(self, number: int) -> ResidualConnection:
        return cast(ResidualConnection, self.residual_connections[number])

    def begin(self, encoder_output: Float[Tensor, "B S D"]) -> LayerCache:
        """Implements `DecoderLayer.begin`; the self-attention cache is a `FusedCache`."""
        cache = super().begin(encoder_output)
        target = cache.self_attention
        return LayerCache(FusedCache(target.keys, target.values).with_indirection(), cache.cross_attention)

    def fused_step(self, x: Float[Tensor, "R D"], cache: DecoderCache, index: int) -> Float[Tensor, "R D"]:
        """Same as `DecoderLayer.step`, but for rows that are all at the same position."""
        target, source = cast(FusedCache, cache.layers[index].self_attention), cache.layers[index].cross_attention
        target.reserve(cache.longest + 1)
        attention, network = self.self_attention_block, cast(FeedForwardBlock, self.feed_forward_block)
        y = self._first_input(x)
        qkv = F.linear(y, self._qkv_weight, self._qkv_bias)
        heads = triton_kernels.self_attention_step(
            qkv, target.keys, target.values, cache.positions, _scale(attention), target.cache_indirection
        )  # fmt: skip
        x, y = self._add_norm(0, x, attention.W_o(heads))
        attention = self.cross_attention_block
        heads = triton_kernels.cross_attention_step(
            attention.W_q(y), source.keys, source.values, cache.src_mask, _scale(attention)
        )
        x, y = self._add_norm(1, x, attention.W_o(heads))
        x, _ = self._add_norm(2, x, network.linear_2(_inner_layer(network, y)))
        return x

    def _first_input(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """Returns the input of the first sub-layer."""
        norm = cast(LayerNormalization, self._residual(0).norm)
        return triton_kernels.add_norm(x, None, norm.alpha, norm.beta, norm.eps)[1] if self._is_pre else x

    def _add_norm(
        self, number: int, x: Float[Tensor, "R D"], y: Float[Tensor, "R D"]
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R D"]]:
        """Returns the residual sum after a sub-layer and the input of the next; in post-norm layers, they are equal."""
        if self._is_pre and number == 2:
            return x + y, x
        norm = cast(LayerNormalization, self._residual(number + self._is_pre).norm)
        total, normed = triton_kernels.add_norm(x, y, norm.alpha, norm.beta, norm.eps, store_sum=self._is_pre)
        return (total, normed) if self._is_pre else (normed, normed)


def _fuse_qkv(attention: MultiHeadAttention, name: str) -> Tensor:
    """Concatenates a parameter of the query, key and value projections, which become views of the result."""
    projections = [attention.W_q, attention.W_k, attention.W_v]
    fused = torch.cat([getattr(projection, name).data for projection in projections])
    for projection, part in zip(projections, fused.chunk(3), strict=True):
        getattr(projection, name).data = part
    return fused


def _inner_layer(network: FeedForwardBlock, x: Float[Tensor, "R D"]) -> Float[Tensor, "R F"]:
    """Computes the inner layer of a feed-forward network, with ReLU fused into the product if there is a bias."""
    linear, bias = network.linear_1, cast("Tensor | None", network.linear_1.bias)
    if network.activation is torch.relu_ and bias is not None:
        return torch._addmm_activation(bias, x, linear.weight.t())  # pyright: ignore[reportPrivateImportUsage, reportPrivateUsage]
    return network.activation(linear(x))


def _scale(attention: MultiHeadAttention) -> float:
    return 1 / math.sqrt(attention.d_k) if attention.scale is None else attention.scale


def _can_be_fused(layer: nn.Module) -> bool:
    """Whether the kernels support the blocks of a layer."""
    if type(layer) is not DecoderLayer:
        return False
    attentions = layer.self_attention_block, layer.cross_attention_block
    return (
        all(
            type(block) is MultiHeadAttention
            and block.kv_heads == block.h
            and block.d_k == block.d_v
            and block.d_k in HEAD_DIMS
            for block in attentions
        )
        and type(layer.feed_forward_block) is FeedForwardBlock
        and all(
            type(residual) is ResidualConnection and type(residual.norm) is LayerNormalization
            for residual in layer.residual_connections
        )
    )
