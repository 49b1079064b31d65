"""A model together with its loss: what one step of training differentiates."""

import numpy as np
from numpy.typing import NDArray
from torch import nn

from transformer.blocks import causal_mask, padding_mask
from transformer.protocols import LossSum, PairBatch
from transformer.text.control import PAD_ID
from transformer.training.activation_checkpointing import checkpoint_layers
from transformer.training.cost import translation_flops
from transformer.training.loss import smoothed_cross_entropy
from transformer.transformer import Transformer


class TranslationObjective(nn.Module):
    """Teacher forcing with label smoothing.

    The decoder reads the reference and is scored on the next token at every position. The target distribution gives
    1 - epsilon to the reference and spreads epsilon over the whole vocabulary (epsilon / V each, the reference
    included). Padding is not scored, and not even projected to the vocabulary.

    Args:
        model: an encoder-decoder.
        label_smoothing: epsilon.
        pad_ids: of source and target.
        activation_checkpointing: keep less for the backward pass, see `checkpoint_layers`.

    Source: Vaswani et al. 2017, Sec. 5.4; Szegedy et al. 2016, Sec. 7.
    """

    def __init__(
        self,
        model: Transformer,
        label_smoothing: float,
        *,
        pad_ids: tuple[int, int] = (PAD_ID, PAD_ID),
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.pad_ids = pad_ids
        self.activation_checkpointing = activation_checkpointing
        if activation_checkpointing:
            checkpoint_layers(model)
        self.label_smoothing = label_smoothing

    def forward(self, batch: PairBatch) -> LossSum:
        """The summed loss; metrics hold `nll_sum`, the unsmoothed one, whose mean gives the perplexity."""
        src_mask = padding_mask(batch.src, self.pad_ids[0])
        # Padding stands at the end of a row, so looking back never meets it from a scored position.
        tgt_mask = causal_mask(batch.tgt.size(1), batch.tgt.device)
        hidden = self.model.decode(self.model.encode(batch.src, src_mask), src_mask, batch.tgt, tgt_mask)
        scored = batch.labels != self.pad_ids[1]
        projection = self.model.projection_layer.proj
        loss_sum, nll_sum = smoothed_cross_entropy(
            hidden[scored], projection.weight, projection.bias, batch.labels[scored], self.label_smoothing
        )
        return LossSum(loss_sum, batch.scored_tokens, {"nll_sum": nll_sum})

    def operations(self, lengths: NDArray[np.int32]) -> int:
        """Floating-point operations of a batch of pairs of these lengths, see `translation_flops`."""
        source, target = (int(longest) for longest in lengths.max(axis=0))
        return translation_flops(
            self.model, len(lengths), source, target, int(lengths[:, 1].sum()), twice=self.activation_checkpointing
        )
