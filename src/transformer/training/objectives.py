"""A model together with its loss: what one step of training differentiates."""

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor, nn

from transformer.blocks import causal_mask, padding_mask
from transformer.protocols import LossSum, PairBatch
from transformer.text.control import OURS, ControlIds
from transformer.training.activation_checkpointing import checkpoint_layers
from transformer.training.cost import translation_flops
from transformer.training.loss import smoothed_cross_entropy
from transformer.transformer import Transformer


class TranslationObjective(nn.Module):
    """Teacher forcing with label smoothing.

    The decoder reads the reference and is scored on the next token at every position. The target distribution gives
    1 - epsilon to the reference and spreads epsilon over the whole vocabulary (epsilon / V each, the reference
    included). Padding is not scored, and not even projected to the vocabulary.

    With R-Drop, training sends every pair through the model twice, side by side, and what dropout makes of it differs:
    the loss is the mean of both, with half of `r_drop` times the mean divergence of each from the other.

    With token dropout, training reads the unknown token in place of some tokens of the source and of the target so far;
    what is scored stays.

    Args:
        model: an encoder-decoder.
        label_smoothing: epsilon.
        r_drop: alpha of R-Drop; 0 does without.
        token_dropout: probability that a token is read as the unknown one.
        control: ids of source and target that are no text.
        activation_checkpointing: keep less for the backward pass, see `checkpoint_layers`.

    Source: Vaswani et al. 2017, Sec. 5.4; Szegedy et al. 2016, Sec. 7; Liang et al. 2021, Eqs. 2 to 4; Bowman et al.
    2016, "Generating Sentences from a Continuous Space", Sec. 3.1 (there of the target alone).
    """

    def __init__(
        self,
        model: Transformer,
        label_smoothing: float,
        *,
        r_drop: float = 0.0,
        token_dropout: float = 0.0,
        control: tuple[ControlIds, ControlIds] = (OURS, OURS),
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.control = control
        self.pad_ids = (control[0].pad or 0, control[1].pad or 0)
        self.activation_checkpointing = activation_checkpointing
        if activation_checkpointing:
            checkpoint_layers(model)
        self.label_smoothing = label_smoothing
        self.r_drop = r_drop
        self.token_dropout = token_dropout

    def forward(self, batch: PairBatch) -> LossSum:
        """The summed loss; metrics hold `nll_sum`, the unsmoothed one, whose mean gives the perplexity."""
        passes = 2 if self.training and self.r_drop else 1
        src, tgt = (side.repeat_interleave(passes, dim=0) for side in (batch.src, batch.tgt))
        src_mask = padding_mask(src, self.pad_ids[0])
        if self.training and self.token_dropout:
            src, tgt = (drop_tokens(*side, self.token_dropout) for side in zip((src, tgt), self.control, strict=True))
        # Padding stands at the end of a row, so looking back never meets it from a scored position.
        tgt_mask = causal_mask(tgt.size(1), tgt.device)
        hidden = self.model.decode(self.model.encode(src, src_mask), src_mask, tgt, tgt_mask)
        side_by_side = hidden.unflatten(0, (-1, passes)).transpose(1, 2)
        scored = batch.labels != self.pad_ids[1]
        projection = self.model.projection_layer.proj
        loss_sum, nll_sum = smoothed_cross_entropy(
            side_by_side[scored].flatten(0, 1),
            projection.weight,
            projection.bias,
            batch.labels[scored].repeat_interleave(passes),
            self.label_smoothing,
            self.r_drop if passes == 2 else 0.0,
        )
        return LossSum(loss_sum / passes, batch.scored_tokens, {"nll_sum": nll_sum / passes})

    def operations(self, lengths: NDArray[np.int32]) -> int:
        """Floating-point operations of a batch of pairs of these lengths, see `translation_flops`."""
        source, target = (int(longest) for longest in lengths.max(axis=0))
        passes = 2 if self.r_drop else 1
        return passes * translation_flops(
            self.model, len(lengths), source, target, int(lengths[:, 1].sum()), twice=self.activation_checkpointing
        )


def drop_tokens(tokens: Int[Tensor, "B T"], control: ControlIds, p: float) -> Int[Tensor, "B T"]:
    """Replaces each token of text by the unknown one with probability `p`; what steers the model stays."""
    assert control.unk is not None
    dropped = torch.rand(tokens.shape, device=tokens.device) < p
    for steers in (control.pad, control.bos, control.eos):
        if steers is not None:
            dropped &= tokens != steers
    return tokens.masked_fill(dropped, control.unk)
