"""Loss, perplexity and accuracy on held-out examples."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from transformer.interfaces import Dataset
from transformer.training.backend import CPU_FLOAT32, Backend


@torch.no_grad()
def validation_loss(
    objective: nn.Module, dataset: Dataset, batch_tokens: int, backend: Backend = CPU_FLOAT32
) -> dict[str, float]:
    """Computes the loss per token over all examples of a dataset, in evaluation mode.

    Returns:
        `loss`, smoothed as in training but without the R-Drop term; `perplexity`, the exponential of the unsmoothed
        loss, with EOS counted; and `accuracy` in percent if the objective counts correct predictions.
    """
    objective.eval()
    loss_sum = nll_sum = n_correct = 0.0
    count = 0
    has_accuracy = False
    for ids in batches_longest_first(dataset.lengths.max(axis=1), batch_tokens):
        with backend.compute_context():
            result = objective(dataset.fetch(ids).to(backend.device))
        loss_sum += result.loss_sum.item()
        nll_sum += result.metrics["nll_sum"].item()
        has_accuracy = "right" in result.metrics
        n_correct += result.metrics["right"].item() if has_accuracy else 0.0
        count += result.count
    perplexity = math.exp(nll_sum / count) if nll_sum / count < 700 else math.inf
    return {
        "loss": loss_sum / count,
        "perplexity": perplexity,
        **({"accuracy": 100 * n_correct / count} if has_accuracy else {}),
    }


def batches_longest_first(lengths: NDArray[np.int32], batch_tokens: int) -> list[NDArray[np.int64]]:
    """Groups examples by length, longest first, in batches of at most `batch_tokens` tokens, padding included."""
    order = np.argsort(-lengths, kind="stable")
    batches: list[NDArray[np.int64]] = []
    start = 0
    while start < len(order):
        size = max(1, batch_tokens // int(lengths[order[start]]))
        batches.append(order[start : start + size])
        start += size
    return batches
