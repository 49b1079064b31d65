"""Label-smoothed cross-entropy of a projection, without ever holding all logits."""

from typing import Any, Final

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK_ELEMENTS: Final = 1 << 20
"""Logits in a chunk: 4 MiB in float32, small enough for a shared last-level cache; two such arrays live at a time."""


def smoothed_cross_entropy(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    labels: Int[Tensor, " N"],
    epsilon: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Projects to the vocabulary and sums the cross-entropy against smoothed labels.

    The target distribution has 1 - epsilon on the label and epsilon / V on every token, the label included. Works
    through chunks of rows: the log-probabilities of a chunk are overwritten by the gradient of its logits, so that the
    (N, V) matrix never exists as a whole.

    Args:
        hidden: decoder outputs of the scored positions.
        weight: of the projection.
        bias: of the projection, if it has one.
        labels: the token that each position should say.
        epsilon: label smoothing, 0 <= epsilon < 1.

    Returns:
        The smoothed loss in nats summed over positions, with gradient, and the unsmoothed one, without.

    Source: Szegedy et al. 2016, Sec. 7, with uniform u; Vaswani et al. 2017, Sec. 5.4.
    """
    loss_sum, nll_sum = _SmoothedCrossEntropy.apply(hidden, weight, bias, labels, epsilon, torch.is_grad_enabled())
    return loss_sum, nll_sum.detach()


class _SmoothedCrossEntropy(torch.autograd.Function):
    """The gradient is known as soon as the loss is: softmax minus target, so forward computes both."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        epsilon: float,
        wants_gradient: bool,
    ) -> Any:
        rows = max(1, CHUNK_ELEMENTS // weight.size(0))
        loss_sum, nll_sum = hidden.new_zeros(()), hidden.new_zeros(())
        d_hidden = torch.empty_like(hidden) if wants_gradient else None
        d_weight = torch.zeros_like(weight) if wants_gradient else None
        d_bias = torch.zeros_like(bias) if wants_gradient and bias is not None else None
        for start in range(0, hidden.size(0), rows):
            chunk = slice(start, start + rows)
            log_p = torch.nn.functional.linear(hidden[chunk], weight, bias).log_softmax(dim=-1)
            nll = -log_p.gather(1, labels[chunk, None]).sum()
            nll_sum += nll
            loss_sum += (1 - epsilon) * nll - epsilon * log_p.mean(dim=-1).sum()
            if d_hidden is None or d_weight is None:
                continue
            d_logits = log_p.exp_().sub_(epsilon / weight.size(0))
            on_label = torch.full_like(labels[chunk, None], epsilon - 1, dtype=d_logits.dtype)
            d_logits.scatter_add_(1, labels[chunk, None], on_label)
            torch.mm(d_logits, weight, out=d_hidden[chunk])
            d_weight.addmm_(d_logits.T, hidden[chunk])
            if d_bias is not None:
                d_bias += d_logits.sum(dim=0)
        ctx.gradients = (d_hidden, d_weight, d_bias)
        return loss_sum, nll_sum

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        scaled = [None if gradient is None else gradient * gradients[0] for gradient in ctx.gradients]
        return (*scaled, None, None, None)
