"""Where a model looks while it writes, and what of the source it hardly looked at."""

from collections.abc import Iterable, Sequence
from typing import Final, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from transformer.blocks import DecoderLayer, MultiHeadAttention, causal_mask, padding_mask
from transformer.tokenizers.special_tokens import BOS_ID, PAD_ID
from transformer.transformer import Transformer

LEAST_ATTENTION: Final = 1e-6
"""Keeps the logarithm finite of a token that was never looked at."""


@torch.no_grad()
def watched_weights(model: Transformer, src: Int[Tensor, "B S"], tgt: Int[Tensor, "B T"]) -> list[Tensor]:
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
        src_mask = padding_mask(src)
        model.decode(model.encode(src, src_mask), src_mask, tgt, causal_mask(tgt.size(1), tgt.device))
    finally:
        for hook in hooks:
            hook.remove()
    return weights


def word_layer(weights: Sequence[Tensor]) -> Tensor:
    """The weights of the last layer but one, which follows words best, averaged over its heads: (B, T, S).

    Source: Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models", Sec. 4.1.
    """
    return weights[max(0, len(weights) - 2)].mean(dim=1)


def coverage_penalty(weights: Float[Tensor, "T S"]) -> float:
    """Sum over the source's tokens of log min(1, attention that it got in all): 0 where each got enough, else below.

    Source: Wu et al. 2016, "Google's Neural Machine Translation System", Eq. 14, with a factor of 1.
    """
    return weights.double().sum(dim=0).clamp(LEAST_ATTENTION, 1.0).log().sum().item()


def coverage_penalties(
    models: Sequence[Transformer],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    batch_tokens: int,
    device: torch.device,
) -> list[float]:
    """The coverage penalty of each pair.

    Args:
        models: in evaluation mode; their attention is averaged.
        pairs: tokens of a source, EOS last, and of what was written, BOS first and without its last token.
        batch_tokens: most tokens of the longer side, padding counted, at a time.
        device: of the models.
    """
    found: dict[int, float] = {}
    order = sorted(range(len(pairs)), key=lambda index: -max(map(len, pairs[index])))
    while order:
        size = max(1, batch_tokens // max(map(len, pairs[order[0]])))
        batch, order = order[:size], order[size:]
        src, tgt = (
            pad_sequence([torch.tensor(pairs[index][side]) for index in batch], True, PAD_ID).to(device)
            for side in (0, 1)
        )
        weights = torch.stack([word_layer(watched_weights(model, src, tgt)) for model in models]).mean(dim=0).cpu()
        for row, index in enumerate(batch):
            n_source, n_written = map(len, pairs[index])
            found[index] = coverage_penalty(weights[row, :n_written, :n_source])
    return [found[index] for index in range(len(pairs))]


def written_from(tokens: Sequence[int], length: int, first: int | None = BOS_ID) -> list[int]:
    """What a model has read when it writes each of `length` tokens: what it begins with, and those before."""
    return [BOS_ID if first is None else first, *tokens][:length]
