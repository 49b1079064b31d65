"""Packed stacks and models as arguments of kernels that compute them as a whole."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, cast, runtime_checkable

from torch import Tensor, nn

from transformer.blocks.causal import CausalDecoder, CausalDecoderLayer
from transformer.blocks.decoder import Decoder, DecoderLayer
from transformer.blocks.encoder import EncoderLayer
from transformer.blocks.positional import LearnedPositions, NoPositions, PositionalEncoding
from transformer.blocks.readout import ReadoutLayer
from transformer.blocks.stack import LayerStack
from transformer.inference.cpu.attention import PackedAttention
from transformer.inference.cpu.layers import (
    PackedEmbedding,
    PackedFeedForward,
    PackedGatedFeedForward,
    PackedNormalization,
    PackedProjection,
    PackedResidual,
)
from transformer.kernels import CompiledDecoder, CompiledEncoder, CompiledModel
from transformer.kernels.compiled_model import (
    EmbeddingWeights,
    LayerWeights,
    NormParameters,
    StackWeights,
    supports_layers,
)

Layer = EncoderLayer | DecoderLayer
LAYERS: Final = (EncoderLayer, ReadoutLayer, CausalDecoderLayer, DecoderLayer)
"""Classes of layers that the kernels know."""


@runtime_checkable
class EncoderDecoder(Protocol):
    """The parts of an encoder-decoder model such as `Transformer`."""

    encoder: nn.Module
    decoder: nn.Module
    src_embed: nn.Module
    tgt_embed: nn.Module
    src_pos: nn.Module
    tgt_pos: nn.Module
    projection_layer: nn.Module


@runtime_checkable
class DecoderOnly(Protocol):
    """The parts of a language model such as `LanguageModel`."""

    decoder: nn.Module
    embed: nn.Module
    positions: nn.Module
    projection_layer: nn.Module


def compile_model(model: nn.Module) -> CompiledModel | None:
    """Describes a model of packed stacks to the kernels; None if it has parts that they do not know."""
    projection = getattr(model, "projection_layer", None)
    if not isinstance(projection, PackedProjection):
        return None
    encoder: CompiledEncoder | None = None
    if isinstance(model, EncoderDecoder):
        encoder, decoder = getattr(model.encoder, "compiled", None), getattr(model.decoder, "compiled", None)
        source, target = _embedding(model.src_embed, model.src_pos), _embedding(model.tgt_embed, model.tgt_pos)
        if encoder is None:
            return None
    elif isinstance(model, DecoderOnly):
        decoder = getattr(model.decoder, "compiled_decoder", None)
        source = target = _embedding(model.embed, model.positions)
    else:
        return None
    if source is None or target is None or decoder is None:
        return None
    return CompiledModel(source, target, encoder, decoder, projection.proj)


def compile_encoder(stack: LayerStack, *, but_last: bool = False) -> CompiledEncoder | None:
    """Describes a stack of packed layers without cross-attention; None if the kernels do not support it.

    Args:
        stack: The stack.
        but_last: Whether the last layer and the norm are left out.
    """
    layers = list(stack.layers)
    weights = (
        _stack_weights(stack, layers[:-1], nn.Identity()) if but_last else _stack_weights(stack, layers, stack.norm)
    )
    return None if weights is None else CompiledEncoder(weights)


def compile_decoder(stack: Decoder | CausalDecoder) -> CompiledDecoder | None:
    """Describes a decoder of packed layers; None if the kernels do not support it."""
    weights = _stack_weights(stack, list(stack.layers), stack.norm)
    if weights is None:
        return None
    if isinstance(stack, CausalDecoder):
        return CompiledDecoder(weights, prompt_encoder=CompiledEncoder(weights, is_causal=True))
    layers = cast(Iterable[DecoderLayer], stack.layers)
    cross_attention = (cast(PackedAttention, layer.cross_attention_block) for layer in layers)
    return CompiledDecoder(weights, [attention.W_kv for attention in cross_attention])


def _stack_weights(stack: LayerStack, layers: Sequence[nn.Module], norm: nn.Module) -> StackWeights | None:
    if stack.position_bias is not None or not isinstance(norm, nn.Identity | PackedNormalization):
        return None
    supported = [cast(Layer, layer) for layer in layers if type(layer) in LAYERS and _is_supported(cast(Layer, layer))]
    blocks = [cast(PackedAttention, block) for layer in supported for block in _attentions(layer)]
    sizes = {(block.h, block.kv_heads, block.d_k) for block in blocks}
    if len(supported) < len(layers) or len(sizes) != 1:
        return None
    return StackWeights(list(map(_layer_weights, supported)), _norm(norm), *sizes.pop())


def _is_supported(layer: Layer) -> bool:
    network = layer.feed_forward_block
    return (
        all(isinstance(block, PackedAttention) and supports_layers(block.d_k) for block in _attentions(layer))
        and isinstance(network, PackedFeedForward | PackedGatedFeedForward)
        and network.fused is not None
        and all(isinstance(residual, PackedResidual) for residual in layer.residual_connections)
    )


def _attentions(layer: Layer) -> list[nn.Module]:
    return [layer.self_attention_block, *([layer.cross_attention_block] if isinstance(layer, DecoderLayer) else [])]


def _layer_weights(layer: Layer) -> LayerWeights:
    self_attention, *cross_attention = (cast(PackedAttention, block) for block in _attentions(layer))
    network = cast(PackedFeedForward | PackedGatedFeedForward, layer.feed_forward_block)
    residuals, rotation = cast(Sequence[PackedResidual], layer.residual_connections), self_attention.rotation
    return LayerWeights(
        [self_attention.self_projection, self_attention.W_o, network.linear_1, network.linear_2],
        [cast(NormParameters, _norm(residual.norm)) for residual in residuals],
        is_pre=residuals[0].order == "pre",
        gate=network.gate if isinstance(network, PackedGatedFeedForward) else None,
        cross_attention=[matrix for block in cross_attention for matrix in (block.W_q, block.W_o)],
        rotation=None if rotation is None else (_table(rotation.cosines), _table(rotation.sines)),
    )


def _norm(norm: nn.Module) -> NormParameters | None:
    return (norm.alpha, norm.beta, norm.eps) if isinstance(norm, PackedNormalization) else None


def _embedding(embedding: nn.Module, positions: nn.Module) -> EmbeddingWeights | None:
    table: Tensor | None = None
    if type(positions) is PositionalEncoding:
        table = positions.pe
    elif type(positions) is LearnedPositions:
        table = positions.embedding.weight
    elif type(positions) is not NoPositions:
        return None
    if type(embedding) is not PackedEmbedding:
        return None
    return EmbeddingWeights(
        embedding.embedding, embedding.scale, positions.seq_len, None if table is None else _table(table)
    )


def _table(table: Tensor) -> Tensor:
    return table.detach().float().contiguous()
