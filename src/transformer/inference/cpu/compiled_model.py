"""Packed models that kernels run as a whole."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast, runtime_checkable

from torch import Tensor, nn

from transformer.blocks.encoder import EncoderLayer
from transformer.blocks.positional import LearnedPositions, PositionalEncoding
from transformer.blocks.stack import LayerStack
from transformer.inference.cpu.attention import PackedAttention
from transformer.inference.cpu.fused_layers import PackedDecoderLayer
from transformer.inference.cpu.layers import (
    PackedEmbedding,
    PackedFeedForward,
    PackedNormalization,
    PackedProjection,
    PackedResidual,
)
from transformer.kernels import CompiledModel, LayerStep
from transformer.kernels.compiled_model import (
    DecoderWeights,
    EmbeddingWeights,
    EncoderLayerWeights,
    EncoderWeights,
    NormParameters,
)


@runtime_checkable
class EncoderDecoder(Protocol):
    """The parts of an encoder-decoder model such as `Transformer`."""

    encoder: LayerStack
    decoder: LayerStack
    src_embed: nn.Module
    tgt_embed: nn.Module
    src_pos: nn.Module
    tgt_pos: nn.Module
    projection_layer: nn.Module


def compile_model(model: nn.Module) -> CompiledModel | None:
    """Describes a packed model to the kernels; None if it has parts that they do not know."""
    if not isinstance(model, EncoderDecoder):
        return None
    encoder, decoder = _encoder(model), _decoder(model)
    return None if encoder is None or decoder is None else CompiledModel(encoder, decoder)


def _encoder(model: EncoderDecoder) -> EncoderWeights | None:
    embedding, stack = _embedding(model.src_embed, model.src_pos), model.encoder
    if embedding is None or not _is_supported_stack(stack, _is_supported_encoder_layer):
        return None
    layers = cast(Sequence[EncoderLayer], stack.layers)
    if (sizes := _head_sizes(layer.self_attention_block for layer in layers)) is None:
        return None
    return EncoderWeights(embedding, [_encoder_layer(layer) for layer in layers], _norm(stack.norm), *sizes)


def _decoder(model: EncoderDecoder) -> DecoderWeights | None:
    embedding, stack = _embedding(model.tgt_embed, model.tgt_pos), model.decoder
    projection = model.projection_layer
    is_supported = _is_supported_stack(stack, lambda layer: type(layer) is PackedDecoderLayer)
    if embedding is None or not is_supported or type(projection) is not PackedProjection:
        return None
    layers = cast(Sequence[PackedDecoderLayer], stack.layers)
    cross_attention = [cast(PackedAttention, layer.cross_attention_block) for layer in layers]
    sizes = _head_sizes([*(layer.self_attention_block for layer in layers), *cross_attention])
    if sizes is None:
        return None
    steps, keys_values = [layer.fused_step for layer in layers], [attention.W_kv for attention in cross_attention]
    return DecoderWeights(embedding, steps, keys_values, projection.proj, _norm(stack.norm), *sizes)


def _is_supported_stack(stack: LayerStack, is_supported: Callable[[nn.Module], bool]) -> bool:
    return (
        all(map(is_supported, stack.layers))
        and stack.position_bias is None
        and isinstance(stack.norm, nn.Identity | PackedNormalization)
    )


def _head_sizes(blocks: Iterable[nn.Module]) -> tuple[int, int] | None:
    """Returns the number and the width of the heads of all blocks; None if they differ."""
    sizes = {(block.h, block.d_k) for block in cast(Iterable[PackedAttention], blocks)}
    return sizes.pop() if len(sizes) == 1 else None


def _embedding(embedding: nn.Module, positions: nn.Module) -> EmbeddingWeights | None:
    table: Tensor | None = None
    if type(positions) is PositionalEncoding:
        table = positions.pe
    elif type(positions) is LearnedPositions:
        table = positions.embedding.weight.detach()
    if table is None or type(embedding) is not PackedEmbedding:
        return None
    return EmbeddingWeights(embedding.embedding, table.float().contiguous(), embedding.scale)


def _is_supported_encoder_layer(layer: nn.Module) -> bool:
    return (
        type(layer) is EncoderLayer
        and isinstance(attention := layer.self_attention_block, PackedAttention)
        and LayerStep.is_supported(attention.d_k)
        and isinstance(network := layer.feed_forward_block, PackedFeedForward)
        and network.fused is not None
        and all(isinstance(residual, PackedResidual) for residual in layer.residual_connections)
    )


def _norm(norm: nn.Module) -> NormParameters | None:
    return (norm.alpha, norm.beta, norm.eps) if isinstance(norm, PackedNormalization) else None


def _encoder_layer(layer: EncoderLayer) -> EncoderLayerWeights:
    attention = cast(PackedAttention, layer.self_attention_block)
    network = cast(PackedFeedForward, layer.feed_forward_block)
    residuals = cast(Sequence[PackedResidual], layer.residual_connections)
    return EncoderLayerWeights(
        [attention.self_projection, attention.W_o, network.linear_1, network.linear_2],
        [cast(NormParameters, _norm(residual.norm)) for residual in residuals],
        is_pre=residuals[0].order == "pre",
    )
