"""Objective of translation: teacher forcing with label smoothing."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from transformer.blocks import causal_mask, padding_mask
from transformer.data.batch import PairBatch
from transformer.interfaces import LossSum
from transformer.tokenizers.special_tokens import PAD_ID
from transformer.training.activation_checkpointing import checkpoint_layers
from transformer.training.objectives.cross_entropy import smoothed_cross_entropy
from transformer.training.planning.flops import translation_flops
from transformer.transformer import Transformer


class TranslationObjective(nn.Module):
    """Cross-entropy under teacher forcing, with label smoothing.

    The decoder reads the reference and is scored on the next token at every position. The target distribution gives
    1 - epsilon to the reference and spreads epsilon over the whole vocabulary (epsilon / V each, the reference
    included). Padding is neither scored nor projected to the vocabulary.

    With R-Drop, every pair passes through the model twice in training, with different dropout. The loss is the mean of
    both losses, plus half of `r_drop` times the mean of the two KL divergences between them.

    Args:
        model: Encoder-decoder model.
        label_smoothing: Epsilon, the probability spread over the vocabulary.
        r_drop: Alpha, the weight of R-Drop; 0 disables it.
        pad_ids: Padding ids of source and target.
        activation_checkpointing: Whether layers are recomputed in the backward pass, see `checkpoint_layers`.

    Source: Vaswani et al. 2017, Sec. 5.4; Szegedy et al. 2016, Sec. 7; Liang et al. 2021, Eqs. 2 to 4.
    """

    def __init__(
        self,
        model: Transformer,
        label_smoothing: float,
        *,
        r_drop: float = 0.0,
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
        self.r_drop = r_drop

    def forward(self, batch: PairBatch) -> LossSum:
        """Returns the summed loss; the metric `nll_sum` is the unsmoothed loss, whose mean gives the perplexity."""
        passes = 2 if self.training and self.r_drop else 1
        src, tgt = (side.repeat_interleave(passes, dim=0) for side in (batch.src, batch.tgt))
        src_mask = padding_mask(src, self.pad_ids[0])
        # Padding is at the end of a row, so the causal mask already hides it from scored positions.
        tgt_mask = causal_mask(tgt.size(1), tgt.device)
        hidden = self.model.decode(self.model.encode(src, src_mask), src_mask, tgt, tgt_mask)
        side_by_side = hidden.unflatten(0, (-1, passes)).transpose(1, 2).flatten(0, 1)
        labels = batch.labels.flatten()
        # A boolean index, whose size is unknown before, would wait for the GPU.
        scored = torch.nonzero_static(labels != self.pad_ids[1], size=batch.scored_tokens)[:, 0]
        projection = self.model.projection_layer.proj
        loss_sum, nll_sum = smoothed_cross_entropy(
            side_by_side[scored].flatten(0, 1),
            projection.weight,
            projection.bias,
            labels[scored].repeat_interleave(passes),
            self.label_smoothing,
            self.r_drop if passes == 2 else 0.0,
        )
        return LossSum(loss_sum / passes, batch.scored_tokens, {"nll_sum": nll_sum / passes})

    def flops(self, lengths: NDArray[np.int32]) -> int:
        """Returns the floating-point operations of a batch of pairs of these lengths, see `translation_flops`."""
        source, target = (int(longest) for longest in lengths.max(axis=0))
        passes = 2 if self.r_drop else 1
        return passes * translation_flops(
            self.model, len(lengths), source, target, int(lengths[:, 1].sum()), recomputed=self.activation_checkpointing
        )
