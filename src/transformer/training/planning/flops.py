"""Number of floating-point operations of a training step, by formula."""

from typing import cast

from torch import nn

from transformer.blocks import MultiHeadAttention, PatchEmbedding
from transformer.transformer import Transformer


def translation_flops(
    model: Transformer, pairs: int, source: int, target: int, scored: int, *, recomputed: bool = False
) -> int:
    """Counts the operations of all matrix products of a training step, two for each multiply-add.

    The backward pass of a product takes two products of the same size, one for each operand. Element-wise operations
    (norms, softmax, dropout, the optimizer) are not counted, since they are bound by memory bandwidth.

    Args:
        model: Encoder-decoder model.
        pairs: Number of sentence pairs in the batch.
        source: Length of the source rows, padding included.
        target: Length of the target rows, padding included.
        scored: Number of target tokens that are projected to the vocabulary, without padding.
        recomputed: Whether the backward pass recomputes the layers, see `checkpoint_layers`.
    """
    source_projections = sum(_n_weights(linear) for linear in _source_projections(model))
    source_weights = _n_weights(model.encoder) + source_projections
    target_weights = _n_weights(model.decoder) - source_projections
    linear = 2 * pairs * (source * source_weights + target * target_weights)
    projection = 2 * scored * _n_weights(model.projection_layer)
    scores = len(model.encoder.layers) * source * source + len(model.decoder.layers) * target * (target + source)
    attention = 2 * pairs * _widths(model.encoder) * scores  # Q K^T, and the weights times V
    return (4 if recomputed else 3) * (linear + attention) + 3 * projection


def stack_flops(
    stack: nn.Module, rows: int, length: int, *, n_queries: int | None = None, recomputed: bool = False
) -> int:
    """Counts the operations of a stack of encoder layers in the same way as `translation_flops`.

    Args:
        stack: Encoder.
        rows: Number of rows in the batch.
        length: Length of the rows, padding included.
        n_queries: Number of positions that the last layer computes; all if None.
        recomputed: Whether the backward pass recomputes the layers.
    """
    layers = cast(nn.ModuleList, stack.get_submodule("layers"))
    skipped_positions = 0 if n_queries is None else length - n_queries
    key_value_weights = sum(
        _n_weights(layers[-1].get_submodule(f"self_attention_block.{name}")) for name in ("W_k", "W_v")
    )
    linear = 2 * rows * (length * _n_weights(stack) - skipped_positions * (_n_weights(layers[-1]) - key_value_weights))
    attention = 2 * rows * (length * len(layers) - skipped_positions) * length * _widths(stack)
    return (4 if recomputed else 3) * (linear + attention)


def head_flops(head: nn.Module, positions: int) -> int:
    """Counts the operations of an output head at a number of positions in the same way as `translation_flops`."""
    return 3 * 2 * positions * _n_weights(head)


def patch_flops(model: nn.Module, patches: int) -> int:
    """Counts the operations of the patch embedding, if the model has one; pixels need no gradient."""
    sizes = [module.projection.weight.numel() for module in model.modules() if isinstance(module, PatchEmbedding)]
    return 2 * 2 * patches * sum(sizes)


def _widths(stack: nn.Module) -> int:
    """Returns the total width of the keys and of the values of all heads of a layer."""
    block = next(module for module in stack.modules() if isinstance(module, MultiHeadAttention))
    return block.h * (block.d_k + block.d_v)


def _source_projections(model: Transformer) -> list[nn.Module]:
    """Returns the linear layers of the decoder that are applied to the encoder's output."""
    blocks = [layer.get_submodule("cross_attention_block") for layer in model.decoder.layers]
    return [block.get_submodule(name) for block in blocks for name in ("W_k", "W_v")]


def _n_weights(module: nn.Module) -> int:
    return sum(linear.weight.numel() for linear in module.modules() if isinstance(linear, nn.Linear))
