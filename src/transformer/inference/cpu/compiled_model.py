"""Packed models that kernels run as a whole."""

from collections.abc import Sequence
from typing import Protocol, TypeGuard, cast, runtime_checkable

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
from transformer.kernels import CompiledModel, EmbeddingWeights, EncoderLayerWeights, LayerStep
from transformer.kernels.compiled_model import NormParameters


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
    encoder, decoder, projection = model.encoder, model.decoder, model.projection_layer
    embeddings = [
        _embedding(model.src_embed, model.src_pos),
        _embedding(model.tgt_embed, model.tgt_pos),
    ]
    stacks = (encoder, decoder)
    if not (
        all(_is_supported_encoder_layer(layer) for layer in encoder.layers)
        and all(type(layer) is PackedDecoderLayer for layer in decoder.layers)
        and all(stack.position_bias is None and _is_supported_norm(stack.norm) for stack in stacks)
        and type(projection) is PackedProjection
        and None not in embeddings
    ):
        return None
    source, target = cast(list[EmbeddingWeights], embeddings)
    decoder_layers = cast(Sequence[PackedDecoderLayer], decoder.layers)
    attention = [
        [cast(PackedAttention, layer.self_attention_block) for layer in encoder.layers],
        [cast(PackedAttention, block) for layer in decoder_layers
         for block in (layer.self_attention_block, layer.cross_attention_block)],
    ]  # fmt: skip
    sizes = [{(block.h, block.d_k) for block in blocks} for blocks in attention]
    if any(len(size) != 1 for size in sizes):
        return None
    (encoder_heads, encoder_width), (decoder_heads, decoder_width) = (size.pop() for size in sizes)
    return CompiledModel(
        source,
        target,
        [_encoder_layer(cast(EncoderLayer, layer)) for layer in encoder.layers],
        [layer.fused_step for layer in decoder_layers],
        [cast(PackedAttention, layer.cross_attention_block).W_kv for layer in decoder_layers],
        projection.proj,
        (_norm(encoder.norm), _norm(decoder.norm)),
        (encoder_heads, decoder_heads),
        (encoder_width, decoder_width),
    )


def _embedding(embedding: nn.Module, positions: nn.Module) -> EmbeddingWeights | None:
    table: Tensor | None = None
    if type(positions) is PositionalEncoding:
        table = positions.pe
    elif type(positions) is LearnedPositions:
        table = positions.embedding.weight.detach()
    if table is None or type(embedding) is not PackedEmbedding:
        return None
    return EmbeddingWeights(embedding.embedding, table.float().contiguous(), embedding.scale)


def _is_supported_encoder_layer(layer: nn.Module) -> TypeGuard[EncoderLayer]:
    return (
        type(layer) is EncoderLayer
        and isinstance(attention := layer.self_attention_block, PackedAttention)
        and LayerStep.is_supported(attention.d_k)
        and isinstance(network := layer.feed_forward_block, PackedFeedForward)
        and network.fused is not None
        and all(isinstance(residual, PackedResidual) for residual in layer.residual_connections)
    )


def _is_supported_norm(norm: nn.Module) -> bool:
    return isinstance(norm, nn.Identity | PackedNormalization)


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
