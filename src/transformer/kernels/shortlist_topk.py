"""The most probable outputs of a projection that is restricted to a shortlist for each sentence."""

import ctypes

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.kernels.library import library, threads_for
from transformer.kernels.packed_linear import PRECISIONS, PackedLinear, PackedMatrixArgs, copy_to_huge_pages
from transformer.kernels.topk import MAX_TOP_K

GROUPS_PER_CACHE_LINE = 16
"""Number of groups of inputs, of four bytes each, in a line of the CPU cache."""


class ShortlistProjection:
    """A copy of a packed matrix in a memory layout in which any subset of its outputs can be computed without copying.

    Args:
        matrix: Matrix without an activation. Its weight is copied.
    """

    def __init__(self, matrix: PackedLinear) -> None:
        groups = matrix.values.flatten(2).view(torch.int32).transpose(1, 2)  # strips, columns, groups
        weight = copy_to_huge_pages(F.pad(groups, (0, -groups.size(2) % GROUPS_PER_CACHE_LINE)))
        self._tensors = (
            weight,
            matrix.bias,
            matrix.scales,
            matrix.offsets,
        )  # keeps the memory that the kernel reads alive
        self.inner, self.columns = matrix.inner, matrix.columns
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in self._tensors]
        self._matrix = PackedMatrixArgs(*pointers, matrix.inner, matrix.columns, PRECISIONS.index(matrix.precision), 0)

    @classmethod
    def from_projection(cls, projection: object) -> "ShortlistProjection | None":
        """Wraps a projection to a vocabulary; returns None if the kernel does not support it."""
        if isinstance(projection, PackedLinear) and library() is not None and projection.activation == "none":
            return cls(projection)
        return None

    def top_k(
        self,
        x: Float[Tensor, "N W K"],
        columns: Int[Tensor, " T"],
        starts: Int[Tensor, " L"],
        list_of: Int[Tensor, " N"],
        k: int,
        forbidden: Bool[Tensor, " V"],
    ) -> tuple[Float[Tensor, "N W k"], Int[Tensor, "N W k"]]:
        """Finds the most probable outputs among those of each sentence's shortlist, like `best_tokens`.

        Args:
            x: Hidden states, W rows per sentence.
            columns: Ids of the outputs of all shortlists, concatenated; less than V and ascending in each list.
            starts: Index in `columns` at which each list begins, and the end of the last one.
            list_of: Index of the shortlist of each sentence.
            k: Number of outputs, at most 64. If a shortlist has fewer, the other log-probabilities are -inf.
            forbidden: Outputs to exclude.

        Returns:
            Log-probabilities within the shortlist and ids of the outputs, in descending order of probability.

        Raises:
            ValueError: x or `forbidden` does not match the weight, or k is out of range.
        """
        if not 0 < k <= MAX_TOP_K:
            raise ValueError(f"k={k} is out of range; choose 1 to {MAX_TOP_K}")
        if x.size(2) != self.inner or len(forbidden) > self.columns:
            raise ValueError(
                f"x.size(2)={x.size(2)} and len(forbidden)={len(forbidden)} do not match the weight; "
                f"pass {self.inner} features and at most {self.columns} outputs"
            )
        x = x.float().contiguous()
        columns, starts, list_of = (ids.long().contiguous() for ids in (columns, starts, list_of))
        log_p = torch.empty(*x.shape[:2], k, dtype=torch.float32, device="cpu")
        tokens = torch.empty(*x.shape[:2], k, dtype=torch.long, device="cpu")
        threads = threads_for(x.numel() * len(columns) // max(1, len(starts) - 1))
        compiled = library()
        assert compiled is not None
        compiled.transformer_best_of_lists(
            ctypes.addressof(self._matrix), columns.data_ptr(), starts.data_ptr(), list_of.data_ptr(), len(x),
            x.data_ptr(), x.size(1), k, forbidden.data_ptr(), log_p.data_ptr(), tokens.data_ptr(), threads,
        )  # fmt: skip
        return log_p, tokens
