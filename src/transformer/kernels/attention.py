"""Attention of cached keys and values without a matrix of weights."""

import ctypes
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.kernels.library import library, rounds, threads_for

WIDEST_HEAD = 128


def supports_attention(width: int, mask: Bool[Tensor, "..."] | None) -> bool:
    """Whether there is a kernel for heads of such a width and such a mask."""
    return library() is not None and width <= WIDEST_HEAD and (mask is None or (mask.dim() == 4 and mask.size(1) == 1))


class Attention(ctypes.Structure):
    """What the kernel is asked; the same fields in the same order as `Attention` in kernels.h."""

    _fields_ = (
        ("query", ctypes.c_void_p), ("keys", ctypes.c_void_p), ("values", ctypes.c_void_p), ("mask", ctypes.c_void_p),
        ("last", ctypes.c_void_p), ("cache_indirection", ctypes.c_void_p), ("out", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in (
            "batch", "queries", "positions", "heads", "width", "query_batch", "query_stride", "key_batch", "key_head",
            "key_stride", "value_batch", "value_head", "value_stride", "mask_batch", "mask_query",
            "holders_stride",
        )),
        ("scale", ctypes.c_float), ("is_bfloat16", ctypes.c_int), ("is_whole", ctypes.c_int),
        ("may_round", ctypes.c_int),
    )  # fmt: skip


def fetch(
    query: Float[Tensor, "B T D"],
    keys: Float[Tensor, "B H S E"],
    values: Float[Tensor, "B H S E"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_whole: bool = False,
    may_round: bool = False,
) -> Float[Tensor, "B T D"] | None:
    """softmax(Q K^T / sqrt(E)) V of all heads, side by side in the last axis; None where the kernel cannot.

    Args:
        query: all heads side by side, float32; of whole sequences that may be rounded, bfloat16 where keys are and
            products take it: the result is bfloat16, too.
        keys: float32 or bfloat16; a position's elements lie side by side.
        values: likewise.
        mask: True = may attend; (B or 1, 1, T or 1, S).
        is_whole: several queries at a time share what is read, which pays where there are many; the result of a query
            is another one in the last bits, but does not depend on how many there are either. For float32 and, as said,
            bfloat16.
        may_round: of whole sequences, products may be those of bfloat16, where that is faster; sums are float32.
    """
    compiled = library()
    is_known = keys.dtype in (torch.float32, torch.bfloat16)
    if compiled is None or not is_known or not supports_attention(keys.size(3), mask):
        return None
    batch, heads, positions, width = keys.shape
    queries = query.size(1)
    if mask is not None:
        mask = mask.expand(-1, -1, -1, positions)
        if positions > 1 and mask.stride(3) != 1:
            mask = mask.contiguous()
    is_rounded = is_whole and may_round and rounds() and query.dtype == keys.dtype == torch.bfloat16
    query = query if is_rounded else query.float()
    if query.size(-1) != heads * width or values.shape != keys.shape or values.dtype != keys.dtype:
        raise ValueError(f"queries of {query.size(-1)} do not go with {tuple(keys.shape)} keys of {heads} heads")
    if query.stride(-1) != 1 or keys.stride(-1) != 1 or values.stride(-1) != 1:
        query, keys, values = query.contiguous(), keys.contiguous(), values.contiguous()
    out = torch.empty(batch, queries, heads * width, dtype=query.dtype, device="cpu")
    asked = cached(keys, values, positions, queries, mask=mask)
    asked.query, asked.out = query.data_ptr(), out.data_ptr()
    asked.is_whole, asked.may_round = is_rounded or (is_whole and keys.dtype == torch.float32), may_round
    asked.query_batch, asked.query_stride = query.stride()[:2]
    compiled.transformer_attention(ctypes.byref(asked), threads_for(4 * batch * heads * queries * positions * width))
    return out


def cached(
    keys: Float[Tensor, "C H L E"],
    values: Float[Tensor, "C H L E"],
    positions: int,
    queries: int,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    last: Int[Tensor, " B"] | None = None,
    cache_indirection: Int[Tensor, "B L"] | None = None,
) -> Attention:
    """Attention to the first `positions` of a cache; the queries and the place for the result are still to be given.

    Args:
        keys: float32 or bfloat16; a position's elements lie side by side. Of as many rows as there are, if there are no
            holders.
        values: likewise.
        positions: most that any row attends to.
        queries: of each row.
        mask: True = may attend; (B or 1, 1, T or 1, S), a row's elements side by side.
        last: position that each row attends up to.
        cache_indirection: which row of the cache holds each position of a row, int32; its own if not given.
    """
    batch, heads, _, width = keys.shape
    batch = batch if cache_indirection is None else len(cache_indirection)
    mask_strides = [0, 0] if mask is None else [mask.stride(axis) if mask.size(axis) > 1 else 0 for axis in (0, 2)]
    return Attention(
        None, keys.data_ptr(), values.data_ptr(), None if mask is None else mask.data_ptr(),
        None if last is None else last.data_ptr(),
        None if cache_indirection is None else cache_indirection.data_ptr(), None,
        batch, queries, positions, heads, width, 0, 0,
        *keys.stride()[:3], *values.stride()[:3], *mask_strides,
        0 if cache_indirection is None else cache_indirection.stride(0),
        1 / math.sqrt(width), keys.dtype == torch.bfloat16, 0, 0,
    )  # fmt: skip


def remember(fresh: Float[Tensor, "B D"], cache: Float[Tensor, "B H L E"], positions: Int[Tensor, " B"]) -> None:
    """Writes the keys or values of one new position a row into a cache, in place; row b at `positions[b]`.

    Args:
        fresh: all heads side by side.
        cache: float32 or bfloat16.
        positions: smaller than L.
    """
    compiled = library()
    rows, heads, _, width = cache.shape
    if compiled is None:
        cache[torch.arange(rows), :, positions] = fresh.unflatten(1, (heads, width)).to(cache.dtype)
        return
    positions = positions.long().contiguous()
    fresh = fresh.float()
    compiled.transformer_remember(
        fresh.data_ptr(), fresh.stride(0), cache.data_ptr(), rows, heads, width,
        *cache.stride()[:3], positions.data_ptr(), cache.dtype == torch.bfloat16,
    )  # fmt: skip


def reorder(cache: Float[Tensor, "B H L E"], rows: Int[Tensor, " R"], length: int) -> Float[Tensor, "R H L E"] | None:
    """The given rows of a cache, in place, of which the first `length` positions count; None where the kernel cannot.

    A row may be wanted more than once; there are no more of them than the cache has.
    """
    compiled = library()
    n_rows, heads, _, width = cache.shape
    if compiled is None or len(rows) > n_rows or cache.stride()[2:] != (width, 1):
        return None
    rows, size = rows.contiguous(), cache.element_size()
    compiled.transformer_reorder(
        cache.data_ptr(), n_rows, rows.data_ptr(), len(rows), heads, cache.stride(0) * size, cache.stride(1) * size,
        length * width * size,
    )  # fmt: skip
    return cache[: len(rows)]
