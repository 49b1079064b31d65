"""Cross-attention of a model while it translates, and the coverage penalty of source tokens it hardly attends to."""

from collections.abc import Iterable, Sequence
from typing import Final, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from transformer.blocks import DecoderLayer, MultiHeadAttention, causal_mask, padding_mask
from transformer.tokenizers.special_tokens import BOS_ID, PAD_ID
from transformer.transformer import Transformer

MIN_ATTENTION: Final = 1e-6
"""Lower bound of a token's attention, which keeps its logarithm finite."""


@torch.no_grad()
def cross_attention_weights(model: Transformer, src: Int[Tensor, "B S"], tgt: Int[Tensor, "B T"]) -> list[Tensor]:
    """Returns the cross-attention weights of every layer, (B, H, T, S) each.

    Runs the model and recomputes the weights from the inputs of each block, since fused attention does not return them.
    """
    weights: list[Tensor] = []

    def record(block: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        query, key, _, mask = inputs
        weights.append(cast(MultiHeadAttention, block).attention_weights(query, key, mask))

    layers = cast(Iterable[DecoderLayer], model.decoder.layers)
    hooks = [layer.cross_attention_block.register_forward_pre_hook(record) for layer in layers]
    try:
        src_mask = padding_mask(src)
        model.decode(model.encode(src, src_mask), src_mask, tgt, causal_mask(tgt.size(1), tgt.device))
    finally:
        for hook in hooks:
            hook.remove()
    return weights


def alignment_weights(weights: Sequence[Tensor]) -> Tensor:
    """Returns the weights of the penultimate layer, which aligns words best, averaged over its heads: (B, T, S).

    Source: Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models", Sec. 4.1.
    """
    return weights[max(0, len(weights) - 2)].mean(dim=1)


def coverage_penalty(weights: Float[Tensor, "T S"]) -> float:
    """Computes the sum over the source tokens of log min(1, total attention to the token).

    The result is 0 if each token received a total of at least 1, and negative otherwise.

    Source: Wu et al. 2016, "Google's Neural Machine Translation System", Eq. 14, with a factor of 1.
    """
    return weights.double().sum(dim=0).clamp(MIN_ATTENTION, 1.0).log().sum().item()


def coverage_penalties(
    models: Sequence[Transformer],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    batch_tokens: int,
    device: torch.device,
) -> list[float]:
    """Computes the coverage penalty of each pair.

    Args:
        models: Models in evaluation mode; their attention is averaged.
        pairs: Source tokens, EOS last, and decoder inputs, BOS first and without the last token of the translation.
        batch_tokens: Maximum number of tokens of the longer side in a batch, padding included.
        device: Device of the models.
    """
    return list(map(coverage_penalty, batched_alignment_weights(models, pairs, batch_tokens, device)))


def batched_alignment_weights(
    models: Sequence[Transformer],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    batch_tokens: int,
    device: torch.device,
) -> list[Float[Tensor, "T S"]]:
    """Computes the weights by which pairs are aligned, see `coverage_penalties`."""
    by_pair: dict[int, Tensor] = {}
    order = sorted(range(len(pairs)), key=lambda index: -max(map(len, pairs[index])))
    while order:
        size = max(1, batch_tokens // max(map(len, pairs[order[0]])))
        batch, order = order[:size], order[size:]
        src, tgt = (
            pad_sequence([torch.tensor(pairs[index][side]) for index in batch], True, PAD_ID).to(device)
            for side in (0, 1)
        )
        weights = (
            torch.stack([alignment_weights(cross_attention_weights(model, src, tgt)) for model in models])
            .mean(dim=0)
            .cpu()
        )
        for row, index in enumerate(batch):
            n_source, n_target = map(len, pairs[index])
            by_pair[index] = weights[row, :n_target, :n_source]
    return [by_pair[index] for index in range(len(pairs))]


def decoder_inputs(tokens: Sequence[int], length: int, first: int | None = BOS_ID) -> list[int]:
    """Returns the first `length` decoder inputs: the start token (BOS by default), then the target tokens."""
    return [BOS_ID if first is None else first, *tokens][:length]
