"""Fused cross-entropy: the loss of logits and its gradient in one pass."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.kernels.elementwise import COST
from transformer.kernels.library import compiled_library, threads_for


def to_gradient(
    logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], epsilon: float, divergence: float = 0.0
) -> Float[Tensor, "N 2"]:
    """Overwrites logits with the gradient of the summed label-smoothed cross-entropy.

    See `smoothed_cross_entropy` for the loss.

    Args:
        logits: Logits accepted by `supports_tensors`, contiguous along the last axis.
        labels: Correct class of each row.
        epsilon: Label smoothing.
        divergence: Weight of the divergence between two forward passes (R-Drop). If it is positive, rows 2i and
            2i + 1 are the two predictions for the same label.

    Returns:
        The smoothed and the unsmoothed loss of each row, in nats, float64.

    Raises:
        ValueError: The shapes of logits and labels do not match, or the logits are not contiguous.
        IndexError: A label is out of range. The logits are unchanged in this case.
    """
    compiled = compiled_library()
    if labels.shape != (len(logits),) or logits.stride(1) != 1 or (divergence and len(logits) % 2):
        raise ValueError(
            f"labels={tuple(labels.shape)} do not match logits={tuple(logits.shape)}; pass one label per row, "
            "contiguous rows, and an even number of rows if there is a divergence"
        )
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
        raise IndexError(f"labels {int(labels.min())} to {int(labels.max())} are not all in 0 to {logits.size(1) - 1}")
    return losses
