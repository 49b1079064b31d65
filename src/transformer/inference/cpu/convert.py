"""Rewrites a model, block by block."""

from collections.abc import Callable
from typing import Final, TypeVar

from torch import Tensor, nn

from transformer.blocks.attention import MultiHeadAttention
from transformer.blocks.decoder import DecoderLayer
from transformer.blocks.embedding import InputEmbedding
from transformer.blocks.encoder import Encoder, EncoderLayer
from transformer.blocks.feed_forward import FeedForwardBlock, GatedFeedForward
from transformer.blocks.normalization import LayerNormalization
from transformer.blocks.projection import ProjectionLayer
from transformer.blocks.residual import ResidualConnection
from transformer.inference.cpu.attention import PackedAttention
from transformer.inference.cpu.fused_layers import PackedDecoderLayer, PackedEncoderLayer, can_be_stepped
from transformer.inference.cpu.layers import (
    PackedEmbedding,
    PackedEncoder,
    PackedFeedForward,
    PackedGatedFeedForward,
    PackedNormalization,
    PackedProjection,
    PackedResidual,
)
from transformer.inference.cpu.weights import Matrices
from transformer.kernels import PackedMatrix, Precision, Weight

Model = TypeVar("Model", bound=nn.Module)
PACKED: Final[dict[type[nn.Module], Callable[..., nn.Module]]] = {
    MultiHeadAttention: PackedAttention,
    FeedForwardBlock: PackedFeedForward,
    GatedFeedForward: PackedGatedFeedForward,
    LayerNormalization: PackedNormalization,
    ResidualConnection: PackedResidual,
    InputEmbedding: PackedEmbedding,
    ProjectionLayer: PackedProjection,
}
"""Which block is rewritten as what; all others stay as they are."""


def pack(model: Model, precision: Precision, weight_of: Callable[[Tensor], Weight] | None = None) -> Model:
    """Rewrites a model in place for inference on a CPU, and returns it.

    Each block's float32 weights are given up as soon as they are packed. The model can no longer be trained or saved.

    Args:
        model: built from the blocks of this package; for inference.
        precision: of the weights; int8 and bfloat16 also cache keys and values in bfloat16.
        weight_of: the numbers of a parameter, where they are stored in that precision already.
    """
    _pack(model.eval(), Matrices(precision, weight_of))
    return model


def _pack(module: nn.Module, matrices: Matrices) -> None:
    for name, child in module.named_children():
        rewrite = PACKED.get(type(child)) if _is_known(child) else None
        if rewrite is not None:
            setattr(module, name, rewrite(child, matrices))
            continue
        _pack(child, matrices)
        if type(child) is DecoderLayer and can_be_stepped(child):
            setattr(module, name, PackedDecoderLayer(child))
        if type(child) is EncoderLayer and can_be_stepped(child):
            setattr(module, name, PackedEncoderLayer(child))
        if type(child) is Encoder:
            setattr(module, name, PackedEncoder(child))


def _is_known(block: nn.Module) -> bool:
    """Whether the packed block can do what this one does."""
    if isinstance(block, ResidualConnection):
        return isinstance(block.norm, LayerNormalization)
    return not isinstance(block, MultiHeadAttention) or block.kv_heads == block.h


def packed_bytes(model: nn.Module) -> int:
    """Memory of a packed model's weights, each distinct one once."""
    held: dict[int, int] = {}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, PackedMatrix):
                memory = value.values.untyped_storage().data_ptr()  # the same of a matrix and its parts
                held[memory] = max(held.get(memory, 0), value.nbytes)
    return sum(held.values()) + sum(parameter.nbytes for parameter in model.parameters())
