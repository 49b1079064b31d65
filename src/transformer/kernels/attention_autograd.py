"""Attention with a gradient, one head at a time, so that scores and weights stay in the cache."""

import ctypes
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from transformer.kernels.library import library, threads_for

POINTER, LONG = ctypes.c_void_p, ctypes.c_long


class Heads(ctypes.Structure):
    """Queries, keys or values in memory; the same fields in the same order as `Heads` in kernels.h."""

    _fields_ = (("data", POINTER), ("batch", LONG), ("head", LONG), ("position", LONG))

    @classmethod
    def of(cls, x: Float[Tensor, "B H T E"]) -> "Heads":
        """Strides as they are."""
        return cls(x.data_ptr(), *x.stride()[:3])


class TrainedAttention(ctypes.Structure):
    """What the kernel is asked; the same fields in the same order as `TrainedAttention` in kernels.h."""

    _fields_ = (
        *((name, Heads) for name in ("query", "keys", "values", "d_query", "d_keys", "d_values")),
        *((name, POINTER) for name in ("mask", "weights", "out")),
        *((name, LONG) for name in (
            "batch", "heads", "queries", "positions", "width", "mask_batch", "mask_query"
        )),
        ("scale", ctypes.c_float), ("is_bfloat16", ctypes.c_int), ("levels", ctypes.c_int), ("seed", ctypes.c_uint64),
    )  # fmt: skip


@dataclass(frozen=True)
class AttentionInputs:
    """What attention reads, forward and backward.

    Attributes:
        query: float32 or bfloat16, as keys and values; a head's elements lie side by side.
        keys: likewise.
        values: likewise.
        mask: True = may attend; (B or 1, 1, T or 1, S).
        scale: of the products, positive.
        levels: 65536 p of the probability p that a weight is dropped.
        seed: of what is dropped.
    """

    query: Float[Tensor, "B H T E"]
    keys: Float[Tensor, "B H S E"]
    values: Float[Tensor, "B H S E"]
    mask: Bool[Tensor, "..."] | None
    scale: float
    levels: int = 0
    seed: int = 0

    def forward(self) -> tuple[Float[Tensor, "B H T E"], Float[Tensor, "B H T even"]]:
        """softmax(scale * Q K^T) V, and the weights before dropout, which have one more column where S is odd.

        Source: Vaswani et al. 2017, Sec. 3.2.1, Eq. 1.
        """
        batch, heads, queries, width = self.query.shape
        positions = self.keys.size(2)
        weights = self.query.new_empty(batch, heads, queries, positions + positions % 2)
        out = self.query.new_empty(batch, queries, heads, width)
        self._call(weights, out)
        return out.transpose(1, 2), weights

    def backward(
        self, weights: Float[Tensor, "B H T even"], d_out: Float[Tensor, "B H T E"]
    ) -> tuple[Float[Tensor, "B H T E"], Float[Tensor, "B H S E"], Float[Tensor, "B H S E"]]:
        """The gradients of query, keys and values from that of the result.

        Those of as many positions lie side by side, as those of maps that are multiplied together next.
        """
        (batch, heads, queries, width), positions = self.query.shape, self.keys.size(2)
        if queries == positions:
            found = self.query.new_empty(batch, positions, 3, heads, width).unbind(2)
        else:
            of_keys_and_values = self.keys.new_empty(batch, positions, 2, heads, width).unbind(2)
            found = (self.query.new_empty(batch, queries, heads, width), *of_keys_and_values)
        d_query, d_keys, d_values = (x.transpose(1, 2) for x in found)
        self._call(weights, d_out.transpose(1, 2).contiguous(), d_query, d_keys, d_values)
        return d_query, d_keys, d_values

    def _call(self, weights: Tensor, out: Tensor, *gradients: Tensor) -> None:
        compiled, mask = library(), self.mask
        assert compiled is not None
        (batch, heads, queries, width), positions = self.query.shape, self.keys.size(2)
        if mask is not None:
            mask = mask.expand(batch, 1, queries, positions)
            mask = mask if mask.stride(3) == 1 else mask.contiguous()
        asked = TrainedAttention(
            *map(Heads.of, (self.query, self.keys, self.values)), *([Heads.of(x) for x in gradients] or [Heads()] * 3),
            None if mask is None else mask.data_ptr(), weights.data_ptr(), out.data_ptr(),
            batch, heads, queries, positions, width, *((0, 0) if mask is None else (mask.stride(0), mask.stride(2))),
            self.scale, self.query.dtype == torch.bfloat16, self.levels, self.seed % 2**64,
        )  # fmt: skip
        threads = threads_for(batch * heads * queries * positions * width)
        compiled.transformer_trained_attention(ctypes.byref(asked), len(gradients) > 0, threads)


def attends(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> bool:
    """Whether the kernel takes these tensors, of which `multiplies` is true."""
    return (
        query.dtype == keys.dtype == values.dtype
        and (query.shape[:2], query.size(3)) == (keys.shape[:2], keys.size(3))
        and keys.shape == values.shape
        and all(x.stride(3) == 1 for x in (query, keys, values))
        and (mask is None or (mask.dtype == torch.bool and mask.dim() == 4 and mask.size(1) == 1))
    )
