"""Cross-attention of a model while it translates, with the tokens it belongs to."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.pipelines.translation.coverage import cross_attention_weights, decoder_inputs
from transformer.pipelines.translation.translator import Translator


@dataclass(frozen=True)
class CrossAttention:
    """Attention of each target token over the source.

    Attributes:
        source: Printable source tokens, EOS last.
        read: Printable target tokens that the decoder reads, SOS first.
        written: Printable target tokens that are predicted from them, EOS last.
        weights: Attention weights of each layer and head.
    """

    source: list[str]
    read: list[str]
    written: list[str]
    weights: Float[Tensor, "N H T S"]


@torch.no_grad()
def cross_attention(translator: Translator, source: str, target: str) -> CrossAttention:
    """Computes the cross-attention of all layers and heads for a source and its translation."""
    model, tokenizers = translator.model, translator.tokenizers
    source_ids = [*tokenizers.source.encode(source), translator.end_of_source]
    target_ids = tokenizers.target.encode(target)
    device = translator.device
    src = torch.tensor([source_ids], device=device)
    special_tokens = translator.special_tokens
    read_ids = decoder_inputs(target_ids, len(target_ids) + 1, special_tokens.bos)
    tgt = torch.tensor([read_ids], device=device)
    return CrossAttention(
        tokenizers.source.pieces(source_ids),
        tokenizers.target.pieces(read_ids),
        tokenizers.target.pieces([*target_ids, special_tokens.end]),
        torch.cat(cross_attention_weights(model, src, tgt)),
    )
