"""The loss of logits and their gradient in one pass."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.kernels.elementwise import COST
from transformer.kernels.library import library, threads_for


def to_gradient(
    logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], epsilon: float, divergence: float = 0.0
) -> Float[Tensor, "N 2"]:
    """Overwrites logits by the gradient of the summed label-smoothed cross-entropy, see `smoothed_cross_entropy`.

    Args:
        logits: of what `multiplies` says the kernels take; a row's elements lie side by side.
        labels: the column that each row should choose.
        epsilon: label smoothing.
        divergence: as there; where it is more than 0, rows 2i and 2i + 1 belong together.

    Returns:
        The smoothed loss of each row and the unsmoothed one, in nats, float64.

    Raises:
        IndexError: a label is no column; nothing is changed.
    """
    compiled = library()
    assert compiled is not None
    if labels.shape != (len(logits),) or logits.stride(1) != 1 or (divergence and len(logits) % 2):
        raise ValueError(f"{tuple(labels.shape)} labels do not go with logits of {tuple(logits.shape)}")
    labels = labels.long().contiguous()
    losses = torch.empty(len(logits), 2, dtype=torch.float64, device="cpu")
    is_bf16, threads = logits.dtype == torch.bfloat16, threads_for(COST * logits.numel())
    if compiled.transformer_cross_entropy(
        logits.data_ptr(),
        logits.stride(0),
        labels.data_ptr(),
        *logits.shape,
        epsilon,
        divergence,
        is_bf16,
        losses.data_ptr(),
        threads,
    ):
        raise IndexError(f"labels {int(labels.min())} to {int(labels.max())} are not all of 0 to {logits.size(1) - 1}")
    return losses
