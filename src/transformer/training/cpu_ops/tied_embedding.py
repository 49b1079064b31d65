"""The gradient of embeddings whose table projects to the vocabulary too."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from transformer.training.objectives.cross_entropy import smoothed_cross_entropy

PLAIN: Final = {
    "padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False, "sparse": False
}  # fmt: skip
"""What `torch.nn.Embedding` asks for unless it is told otherwise."""
NO_PADDING: Final = -1
"""To torch's gradient of an embedding: every token counts."""


class Lookups:
    """Lookups in tables, of which some get a gradient of all their rows from the loss.

    By autograd alone, each lookup would fill a matrix as large as the vocabulary with zeros and the few rows that were
    looked up, and add it to the loss's. Where the loss gives its own, the rows are added to that when it has arrived,
    in the parameter's `grad`; so this is for `backward`, not for `torch.autograd.grad`.
    """

    def __init__(self) -> None:
        self._whole: set[Tensor] = set()

    def look_up(
        self, tokens: Int[Tensor, "*shape"], table: Float[Tensor, "V D"], **options: Any
    ) -> Float[Tensor, "*shape D"]:
        """As `torch.nn.functional.embedding`."""
        is_trained = table.is_leaf and table.requires_grad and torch.is_grad_enabled()
        if not is_trained or options != PLAIN:
            return F.embedding(tokens, table, **options)
        rows: Tensor = _LookedUp.apply(tokens, table, self._whole)  # pyright: ignore[reportAssignmentType]
        return rows

    def loss(
        self, hidden: Float[Tensor, "N D"], weight: Float[Tensor, "V D"], *args: Any
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """As `smoothed_cross_entropy`, whose gradient has all rows of the weight."""
        loss_sum, nll_sum = smoothed_cross_entropy(hidden, weight, *args)
        if loss_sum.requires_grad and weight.requires_grad:
            loss_sum.register_hook(lambda _: self._whole.add(weight))  # on the way back, before any lookup
        return loss_sum, nll_sum


class _LookedUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, table: Tensor, whole: set[Tensor]) -> Tensor:
        ctx.save_for_backward(tokens, table)
        ctx.whole = whole
        return F.embedding(tokens, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        tokens, table = ctx.saved_tensors
        rows = gradients[0].to(table.dtype)
        if table not in ctx.whole:
            return None, torch.ops.aten.embedding_dense_backward(rows, tokens, len(table), NO_PADDING, False), None
        ids, rows = tokens.flatten(), rows.reshape(-1, table.size(1))

        def add(parameter: Tensor) -> None:
            handle.remove()
            if parameter.grad is None:  # nothing had arrived after all
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.index_add_(0, ids, rows)

        handle = table.register_post_accumulate_grad_hook(add)
        return None, None, None
