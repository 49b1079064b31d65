"""How many floating-point operations a step takes, by formula."""

from typing import cast

from torch import nn

from transformer.blocks import MultiHeadAttention, PatchEmbedding
from transformer.transformer import Transformer


def translation_flops(
    model: Transformer, pairs: int, source: int, target: int, scored: int, *, twice: bool = False
) -> int:
    """Operations of all matrix products of a training step, forward and backward; two for each multiplication.

    Going back through a product takes two of the same size, one for each of its operands. Element-wise work (norms,
    softmax, dropout, the optimizer) is not counted: it is bound by memory, not by arithmetic.

    Args:
        model: the translator.
        pairs: rows of the batch.
        source: length of the rows of the source, padding included.
        target: length of the rows of the target, padding included.
        scored: target tokens that are projected to the vocabulary; padding is not.
        twice: the layers' forward pass is done again on the way back, see `checkpoint_layers`.
    """
    of_source = _weights(model.encoder) + sum(_weights(part) for part in _maps_of_source(model))
    of_target = _weights(model.decoder) - sum(_weights(part) for part in _maps_of_source(model))
    linear = 2 * pairs * (source * of_source + target * of_target)
    projection = 2 * scored * _weights(model.projection_layer)
    scores = len(model.encoder.layers) * source * source + len(model.decoder.layers) * target * (target + source)
    attention = 2 * 2 * pairs * _width(model.encoder) * scores  # Q K^T, and the weights times V
    return (4 if twice else 3) * (linear + attention) + 3 * projection


def stack_flops(stack: nn.Module, rows: int, length: int, *, first: int | None = None, twice: bool = False) -> int:
    """As `translation_flops`, of a stack of encoder layers.

    Args:
        stack: an `Encoder`.
        rows: of the batch.
        length: of the rows, padding included.
        first: positions of the last layer that are computed, all if not given.
        twice: as there.
    """
    layers = cast(nn.ModuleList, stack.get_submodule("layers"))
    left_out = 0 if first is None else length - first
    of_all = sum(_weights(layers[-1].get_submodule(f"self_attention_block.{name}")) for name in ("W_k", "W_v"))
    linear = 2 * rows * (length * _weights(stack) - left_out * (_weights(layers[-1]) - of_all))
    attention = 4 * rows * (length * len(layers) - left_out) * length * _width(stack)
    return (4 if twice else 3) * (linear + attention)


def head_flops(head: nn.Module, positions: int) -> int:
    """As `translation_flops`, of linear maps that read so many positions."""
    return 3 * 2 * positions * _weights(head)


def patch_flops(model: nn.Module, patches: int) -> int:
    """As `translation_flops`, of the map of so many patches, if there is one; pixels have no gradient."""
    maps = [part.projection.weight.numel() for part in model.modules() if isinstance(part, PatchEmbedding)]
    return 2 * 2 * patches * sum(maps)


def _width(stack: nn.Module) -> int:
    """Of all heads of a layer together."""
    block = next(part for part in stack.modules() if isinstance(part, MultiHeadAttention))
    return block.h * block.d_k


def _maps_of_source(model: Transformer) -> list[nn.Module]:
    """The maps of the decoder that read the encoder's output."""
    blocks = [layer.get_submodule("cross_attention_block") for layer in model.decoder.layers]
    return [block.get_submodule(name) for block in blocks for name in ("W_k", "W_v")]


def _weights(module: nn.Module) -> int:
    return sum(part.weight.numel() for part in module.modules() if isinstance(part, nn.Linear))
