"""Conversion of a model, block by block."""

from collections.abc import Callable
from typing import Final, TypeVar

from torch import Tensor, nn

from transformer.blocks.attention import MultiHeadAttention
from transformer.blocks.causal import CausalDecoder
from transformer.blocks.decoder import Decoder
from transformer.blocks.embedding import InputEmbedding
from transformer.blocks.encoder import Encoder
from transformer.blocks.feed_forward import FeedForwardBlock, GatedFeedForward
from transformer.blocks.normalization import LayerNormalization, RMSNormalization
from transformer.blocks.projection import ProjectionLayer
from transformer.blocks.readout import ReadoutEncoder
from transformer.blocks.residual import ResidualConnection
from transformer.blocks.rotary import RotaryAttention
from transformer.inference.cpu.attention import PackedAttention
from transformer.inference.cpu.compiled_model import compile_decoder, compile_model
from transformer.inference.cpu.layers import (
    PackedEmbedding,
    PackedFeedForward,
    PackedGatedFeedForward,
    PackedNormalization,
    PackedProjection,
    PackedResidual,
)
from transformer.inference.cpu.stacks import PackedCausalDecoder, PackedDecoder, PackedEncoder, PackedReadoutEncoder
from transformer.inference.cpu.weights import WeightPacker
from transformer.kernels import PackedLinear, Precision, Weight

Model = TypeVar("Model", bound=nn.Module)
PACKED_BLOCKS: Final[dict[type[nn.Module], Callable[..., nn.Module]]] = {
    MultiHeadAttention: PackedAttention,
    RotaryAttention: PackedAttention,
    FeedForwardBlock: PackedFeedForward,
    GatedFeedForward: PackedGatedFeedForward,
    LayerNormalization: PackedNormalization,
    RMSNormalization: PackedNormalization,
    ResidualConnection: PackedResidual,
    InputEmbedding: PackedEmbedding,
    ProjectionLayer: PackedProjection,
}
"""The packed class of each block; all other blocks stay unchanged."""
PACKED_STACKS: Final[dict[type[nn.Module], Callable[..., nn.Module]]] = {
    Encoder: PackedEncoder,
    ReadoutEncoder: PackedReadoutEncoder,
    CausalDecoder: PackedCausalDecoder,
}
"""The packed class of each stack of layers."""


def pack(model: Model, precision: Precision, weight_of: Callable[[Tensor], Weight] | None = None) -> Model:
    """Converts a model in place for inference on a CPU, and returns it.

    Each block's float32 weights are freed as soon as they are packed. The model can no longer be trained or saved. Its
    attribute `compiled_model` is the model as kernels run it as a whole; None if they do not support it.

    Args:
        model: Model built from the blocks of this package.
        precision: Precision of the weights; int8 and bfloat16 also cache keys and values in bfloat16.
        weight_of: Function that returns the values of a parameter that is stored in that precision already; None
            rounds the parameters.
    """
    _pack(model.eval(), WeightPacker(precision, weight_of))
    vars(model)["compiled_model"] = compile_model(model)
    return model


def _pack(module: nn.Module, weights: WeightPacker) -> None:
    for name, child in module.named_children():
        packed_class = PACKED_BLOCKS.get(type(child)) if _is_supported(child) else None
        if packed_class is not None:
            setattr(module, name, packed_class(child, weights))
            continue
        _pack(child, weights)
        if type(child) is Decoder and (compiled := compile_decoder(child)) is not None:
            setattr(module, name, PackedDecoder(child, compiled))
        if (packed_stack := PACKED_STACKS.get(type(child))) is not None:
            setattr(module, name, packed_stack(child))


def _is_supported(block: nn.Module) -> bool:
    """Whether the packed class supports the options of this block."""
    if isinstance(block, ResidualConnection):
        return isinstance(block.norm, LayerNormalization | RMSNormalization)
    return not isinstance(block, MultiHeadAttention) or block.d_v == block.d_k


def packed_bytes(model: nn.Module) -> int:
    """Returns the memory of a packed model's weights, each shared one counted once."""
    nbytes: dict[int, int] = {}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, PackedLinear):
                pointer = value.values.untyped_storage().data_ptr()  # a matrix and its parts share one storage
                nbytes[pointer] = max(nbytes.get(pointer, 0), value.nbytes)
    return sum(nbytes.values()) + sum(parameter.nbytes for parameter in model.parameters())
