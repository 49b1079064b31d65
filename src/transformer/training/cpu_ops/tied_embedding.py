"""Gradients of embeddings whose weight is tied to the projection to the vocabulary."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from transformer.training.objectives.cross_entropy import smoothed_cross_entropy

DEFAULT_OPTIONS: Final = {
    "padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False, "sparse": False
}  # fmt: skip
"""Default options of `torch.nn.Embedding`."""
NO_PADDING: Final = -1
"""Value of `padding_idx` for `embedding_dense_backward` without a padding token."""


class TiedEmbeddingGradients:
    """Embeddings whose gradients are added to the dense gradient that the loss computes for the same weight.

    Autograd alone would fill a matrix of the size of the vocabulary with zeros for each lookup, write the few rows that
    were used, and add it to the gradient from the loss. Here the rows are added to the parameter's `grad` once the
    gradient from the loss has been accumulated there. This works with `backward`, not with `torch.autograd.grad`.
    """

    def __init__(self) -> None:
        self._with_dense_gradient: set[Tensor] = set()

    def embedding(
        self, tokens: Int[Tensor, "*shape"], weight: Float[Tensor, "V D"], **options: Any
    ) -> Float[Tensor, "*shape D"]:
        """Implements `torch.nn.functional.embedding`."""
        is_trained = weight.is_leaf and weight.requires_grad and torch.is_grad_enabled()
        if not is_trained or options != DEFAULT_OPTIONS:
            return F.embedding(tokens, weight, **options)
        rows: Tensor = _Embedding.apply(tokens, weight, self._with_dense_gradient)  # pyright: ignore[reportAssignmentType]
        return rows

    def cross_entropy(
        self, hidden: Float[Tensor, "N D"], weight: Float[Tensor, "V D"], *args: Any
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Computes `smoothed_cross_entropy` and notes in the backward pass that the weight gets a dense gradient."""
        loss_sum, nll_sum = smoothed_cross_entropy(hidden, weight, *args)
        if loss_sum.requires_grad and weight.requires_grad:
            # This runs in the backward pass, before the gradients of the lookups are computed.
            loss_sum.register_hook(lambda _: self._with_dense_gradient.add(weight))
        return loss_sum, nll_sum


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor, with_dense_gradient: set[Tensor]) -> Tensor:
        ctx.save_for_backward(tokens, weight)
        ctx.with_dense_gradient = with_dense_gradient
        return F.embedding(tokens, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        tokens, weight = ctx.saved_tensors
        rows = gradients[0].to(weight.dtype)
        if weight not in ctx.with_dense_gradient:
            return None, torch.ops.aten.embedding_dense_backward(rows, tokens, len(weight), NO_PADDING, False), None
        ids, rows = tokens.flatten(), rows.reshape(-1, weight.size(1))

        def add_rows(parameter: Tensor) -> None:
            handle.remove()
            if parameter.grad is None:  # the loss contributed no gradient after all
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.index_add_(0, ids, rows)

        handle = weight.register_post_accumulate_grad_hook(add_rows)
        return None, None, None
