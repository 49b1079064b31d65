"""Where a model looks while it translates."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.attended import watched_weights
from transformer.text.control import BOS_ID, EOS_ID
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
