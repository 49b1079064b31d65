"""The most probable outputs of a product, of which each sentence has a list of its own."""

import ctypes

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.kernels.library import library, threads_for
from transformer.kernels.packed_linear import PRECISIONS, Matrix, PackedMatrix, laid_out
from transformer.kernels.topk import MOST_RANKED

LINE = 16
"""Groups of inputs, of four bytes each, that lie in one line of the cache."""


class ListedMatrix:
    """A packed matrix in another order, in which any of its outputs are multiplied where they stand.

    Args:
        matrix: without an activation; its weight is copied.
    """

    def __init__(self, matrix: PackedMatrix) -> None:
        fours = matrix.values.flatten(2).view(torch.int32).transpose(1, 2)  # strips, columns, groups
        self._held = laid_out(F.pad(fours, (0, -fours.size(2) % LINE))), matrix.bias, matrix.scales, matrix.offsets
        self.inner, self.columns = matrix.inner, matrix.columns
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in self._held]
        self._matrix = Matrix(*pointers, matrix.inner, matrix.columns, PRECISIONS.index(matrix.precision), 0)

    @classmethod
    def of(cls, projection: object) -> "ListedMatrix | None":
        """Of a projection to a vocabulary; None where there is no kernel for it."""
        if isinstance(projection, PackedMatrix) and library() is not None and projection.activation == "none":
            return cls(projection)
        return None

    def best(
        self,
        x: Float[Tensor, "N W K"],
        columns: Int[Tensor, " T"],
        starts: Int[Tensor, " L"],
        list_of: Int[Tensor, " N"],
        k: int,
        never: Bool[Tensor, " V"],
    ) -> tuple[Float[Tensor, "N W k"], Int[Tensor, "N W k"]]:
        """As `best_tokens` among the outputs of each sentence's list.

        Args:
            x: W rows of each sentence.
            columns: of all lists, each in ascending order, below V.
            starts: where each list begins in `columns`, and where the last one ends.
            list_of: each sentence.
            k: at most 64; where a list has fewer, the others have the log-probability -inf.
            never: outputs that are left out.

        Raises:
            ValueError: x or `never` does not go with the weight, or k is too large.
        """
        if not 0 < k <= MOST_RANKED:
            raise ValueError(f"{k} outputs are not ranked together")
        if x.size(2) != self.inner or len(never) > self.columns:
            raise ValueError(f"rows of {x.size(2)}, {len(never)} outputs do not go with {self.inner}, {self.columns}")
        x = x.float().contiguous()
        columns, starts, list_of = (each.long().contiguous() for each in (columns, starts, list_of))
        log_p = torch.empty(*x.shape[:2], k, dtype=torch.float32, device="cpu")
        tokens = torch.empty(*x.shape[:2], k, dtype=torch.long, device="cpu")
        threads = threads_for(x.numel() * len(columns) // max(1, len(starts) - 1))
        compiled = library()
        assert compiled is not None
        compiled.transformer_best_of_lists(
            ctypes.addressof(self._matrix), columns.data_ptr(), starts.data_ptr(), list_of.data_ptr(), len(x),
            x.data_ptr(), x.size(1), k, never.data_ptr(), log_p.data_ptr(), tokens.data_ptr(), threads,
        )  # fmt: skip
        return log_p, tokens
