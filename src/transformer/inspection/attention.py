"""Where a model looks while it translates."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer.blocks import DecoderLayer, MultiHeadAttention, causal_mask, padding_mask
from transformer.text.control import BOS_ID, EOS_ID
from transformer.transformer import Transformer
from transformer.translation import Translator


@dataclass(frozen=True)
class CrossAttention:
    """Attention of each target token over the source.

    Attributes:
        source: printable pieces, EOS last.
        target: the pieces that are being written, EOS last.
        weights: of each layer and head.
    """

    source: list[str]
    target: list[str]
    weights: Float[Tensor, "N H T S"]


@torch.no_grad()
def cross_attention(translator: Translator, source: str, target: str) -> CrossAttention:
    """The cross-attention weights of all layers when the model reads `source` and writes `target`."""
    model, tokenizers = translator.model, translator.tokenizers
    source_ids = [*tokenizers.source.encode(source), EOS_ID]
    target_ids = tokenizers.target.encode(target)
    device = translator.device
    src = torch.tensor([source_ids], device=device)
    tgt = torch.tensor([[BOS_ID, *target_ids]], device=device)
    return CrossAttention(
        tokenizers.source.pieces(source_ids),
        tokenizers.target.pieces([*target_ids, EOS_ID]),
        torch.cat(watched_weights(model, src, tgt)),
    )


def watched_weights(model: Transformer, src: Tensor, tgt: Tensor) -> list[Tensor]:
    """The cross-attention weights of every layer, (B, H, T, S) each.

    Runs the model and notes what goes into each block; the fused attention itself shows nothing.
    """
    weights: list[Tensor] = []

    def note(block: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        query, key, _, mask = inputs
        weights.append(cast(MultiHeadAttention, block).attention_weights(query, key, mask))

    layers = cast(Iterable[DecoderLayer], model.decoder.layers)
    hooks = [layer.cross_attention_block.register_forward_pre_hook(note) for layer in layers]
    try:
        model(src, tgt, padding_mask(src), causal_mask(tgt.size(1), tgt.device))
    finally:
        for hook in hooks:
            hook.remove()
    return weights
