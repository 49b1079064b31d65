"""Attention with a gradient, computed one head at a time so that scores and weights stay in the CPU cache."""

import ctypes
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from transformer.kernels.library import LONG, POINTER, compiled_library, threads_for


class HeadsArgs(ctypes.Structure):
    """Address and strides of queries, keys or values, with the fields of the C++ struct `StridedHeads` in kernels.h."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (("data", POINTER), ("batch", LONG), ("head", LONG), ("position", LONG))

    @classmethod
    def from_tensor(cls, x: Float[Tensor, "B H T E"]) -> "HeadsArgs":
        """Describes a tensor by its address and strides."""
        return cls(x.data_ptr(), *x.stride()[:3])


class TrainingAttentionArgs(ctypes.Structure):
    """Arguments of the kernel, with the fields of the C++ struct `TrainingAttention` in kernels.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        *((name, HeadsArgs) for name in ("query", "keys", "values", "d_query", "d_keys", "d_values")),
        *((name, POINTER) for name in ("mask", "weights", "out")),
        *((name, LONG) for name in (
            "batch", "heads", "queries", "positions", "width", "mask_batch", "mask_query"
        )),
        ("scale", ctypes.c_float), ("is_bfloat16", ctypes.c_int), ("levels", ctypes.c_int), ("seed", ctypes.c_uint64),
    )  # fmt: skip


@dataclass(frozen=True)
class AttentionInputs:
    """Inputs of attention, shared by the forward and the backward pass.

    Attributes:
        query: Queries, float32 or bfloat16, contiguous along the last axis.
        keys: Keys, with the dtype of the queries, contiguous along the last axis.
        values: Values, with the dtype of the queries, contiguous along the last axis.
        mask: Attention mask of shape (B or 1, 1, T or 1, S); True = may attend.
        scale: Factor of the dot products, positive.
        levels: Dropout probability of the attention weights, in units of 1/65536.
        seed: Seed of the dropout mask.
    """

    query: Float[Tensor, "B H T E"]
    keys: Float[Tensor, "B H S E"]
    values: Float[Tensor, "B H S E"]
    mask: Bool[Tensor, "..."] | None
    scale: float
    levels: int = 0
    seed: int = 0

    def forward(self) -> tuple[Float[Tensor, "B H T E"], Float[Tensor, "B H T even"]]:
        """Computes softmax(scale * Q K^T) V.

        Returns:
            The attended values, and the attention weights before dropout, padded to an even number of columns.

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
        """Computes the gradients of query, keys and values from the gradient of the result.

        Gradients with the same number of positions are interleaved in one buffer. The backward pass of the fused
        projection that comes next can then multiply them as a single matrix.
        """
        (batch, heads, queries, width), positions = self.query.shape, self.keys.size(2)
        if queries == positions:
            gradients = self.query.new_empty(batch, positions, 3, heads, width).unbind(2)
        else:
            keys_and_values = self.keys.new_empty(batch, positions, 2, heads, width).unbind(2)
            gradients = (self.query.new_empty(batch, queries, heads, width), *keys_and_values)
        d_query, d_keys, d_values = (x.transpose(1, 2) for x in gradients)
        self._call(weights, d_out.transpose(1, 2).contiguous(), d_query, d_keys, d_values)
        return d_query, d_keys, d_values

    def _call(self, weights: Tensor, out: Tensor, *gradients: Tensor) -> None:
        compiled, mask = compiled_library(), self.mask
        (batch, heads, queries, width), positions = self.query.shape, self.keys.size(2)
        if mask is not None:
            mask = mask.expand(batch, 1, queries, positions)
            mask = mask if mask.stride(3) == 1 else mask.contiguous()
        args = TrainingAttentionArgs(
            *map(HeadsArgs.from_tensor, (self.query, self.keys, self.values)),
            *([HeadsArgs.from_tensor(x) for x in gradients] or [HeadsArgs()] * 3),
            None if mask is None else mask.data_ptr(), weights.data_ptr(), out.data_ptr(),
            batch, heads, queries, positions, width, *((0, 0) if mask is None else (mask.stride(0), mask.stride(2))),
            self.scale, self.query.dtype == torch.bfloat16, self.levels, self.seed % 2**64,
        )  # fmt: skip
        threads = threads_for(batch * heads * queries * positions * width)
        compiled.transformer_training_attention(ctypes.byref(args), len(gradients) > 0, threads)


def supports_attention_inputs(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> bool:
    """Whether the kernel supports these inputs, given that `supports_tensors` accepts each of them."""
    return (
        query.dtype == keys.dtype == values.dtype
        and (query.shape[:2], query.size(3)) == (keys.shape[:2], keys.size(3))
        and keys.shape == values.shape  # the kernel has one width of a head, so d_v is d_k
        and all(x.stride(3) == 1 for x in (query, keys, values))
        and (mask is None or (mask.dtype == torch.bool and mask.dim() == 4 and mask.size(1) == 1))
    )
