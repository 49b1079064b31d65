"""Attention over cached keys and values that never stores the full matrix of attention weights."""

import ctypes
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.kernels.library import library, supports_bf16, threads_for

MAX_HEAD_WIDTH = 128


def supports_attention(width: int, mask: Bool[Tensor, "..."] | None) -> bool:
    """Whether the kernel supports heads of this width and a mask of this shape."""
    is_shared_by_heads = mask is None or (mask.dim() == 4 and mask.size(1) == 1)
    return library() is not None and width <= MAX_HEAD_WIDTH and is_shared_by_heads


class AttentionArgs(ctypes.Structure):
    """Arguments of the kernel, with the fields of the C++ struct `Attention` in kernels.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        ("query", ctypes.c_void_p), ("keys", ctypes.c_void_p), ("values", ctypes.c_void_p), ("mask", ctypes.c_void_p),
        ("last", ctypes.c_void_p), ("cache_indirection", ctypes.c_void_p), ("cache_rows", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in (
            "batch", "queries", "positions", "heads", "key_heads", "width", "query_batch", "query_stride",
            "key_batch", "key_head", "key_stride", "value_batch", "value_head", "value_stride",
            "mask_batch", "mask_query", "indirection_stride",
        )),
        ("scale", ctypes.c_float), ("is_bfloat16", ctypes.c_int), ("is_full_sequence", ctypes.c_int),
        ("allow_bf16", ctypes.c_int),
    )  # fmt: skip


def cached_attention(
    query: Float[Tensor, "B T D"],
    keys: Float[Tensor, "B G S E"],
    values: Float[Tensor, "B G S E"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_full_sequence: bool = False,
    allow_bf16: bool = False,
) -> Float[Tensor, "B T D"] | None:
    """Computes softmax(Q K^T / sqrt(E)) V for all heads, concatenated along the last axis.

    Args:
        query: Queries of all heads, concatenated; float32. With `is_full_sequence` and `allow_bf16`, bfloat16 queries
            are used directly if the keys are bfloat16 and the processor multiplies bfloat16; the result is then
            bfloat16 too.
        keys: Keys, float32 or bfloat16, contiguous along the last axis; the heads of the query share them evenly.
        values: Values, with the dtype and layout of the keys.
        mask: Attention mask of shape (B or 1, 1, T or 1, S); True = may attend.
        is_full_sequence: Whether several queries are processed together, which is faster if there are many of them.
            The result of a query differs in its last bits from that of the other mode, but it does not depend on the
            number of queries. Available for float32 and, under the conditions above, bfloat16.
        allow_bf16: Whether products over full sequences may be computed in bfloat16 where that is faster. Sums are
            float32.

    Returns:
        The attended values, or None if the kernel does not support the inputs.

    Raises:
        ValueError: The shapes or dtypes of query, keys and values do not match.
    """
    compiled = library()
    is_supported_dtype = keys.dtype in (torch.float32, torch.bfloat16)
    if compiled is None or not is_supported_dtype or not supports_attention(keys.size(3), mask):
        return None
    batch, key_heads, positions, width = keys.shape
    queries, heads = query.size(1), query.size(2) // width
    if mask is not None:
        mask = mask.expand(-1, -1, -1, positions)
        if positions > 1 and mask.stride(3) != 1:
            mask = mask.contiguous()
    is_bf16 = is_full_sequence and allow_bf16 and supports_bf16() and query.dtype == keys.dtype == torch.bfloat16
    query = query if is_bf16 else query.float()
    is_shared_evenly = query.size(2) == heads * width and heads > 0 and heads % key_heads == 0
    if not is_shared_evenly or values.shape != keys.shape or values.dtype != keys.dtype:
        raise ValueError(
            f"query.size(-1)={query.size(-1)} and values={tuple(values.shape)} ({values.dtype}) do not match "
            f"keys={tuple(keys.shape)} ({keys.dtype}); pass {key_heads * width} features, or a multiple, and values "
            "like the keys"
        )
    if query.stride(-1) != 1 or keys.stride(-1) != 1 or values.stride(-1) != 1:
        query, keys, values = query.contiguous(), keys.contiguous(), values.contiguous()
    out = torch.empty(batch, queries, heads * width, dtype=query.dtype, device="cpu")
    args = attention_args(keys, values, positions, queries, mask=mask)
    args.query, args.out, args.heads = query.data_ptr(), out.data_ptr(), heads
    args.is_full_sequence = is_bf16 or (is_full_sequence and keys.dtype == torch.float32)
    args.allow_bf16 = allow_bf16
    args.query_batch, args.query_stride = query.stride()[:2]
    compiled.transformer_attention(ctypes.byref(args), threads_for(4 * batch * heads * queries * positions * width))
    return out


def attention_args(
    keys: Float[Tensor, "C H L E"],
    values: Float[Tensor, "C H L E"],
    positions: int,
    queries: int,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    cache_indirection: Int[Tensor, "B L"] | None = None,
) -> AttentionArgs:
    """Describes attention over the first `positions` of a cache; the caller then sets the other pointers.

    Args:
        keys: Cached keys, float32 or bfloat16, contiguous along the last axis. Without `cache_indirection`, the cache
            has one row for each row of the batch.
        values: Cached values, with the dtype and layout of the keys.
        positions: Largest number of positions that any row attends to.
        queries: Number of queries per row.
        mask: Attention mask of shape (B or 1, 1, T or 1, S), contiguous along the last axis; True = may attend.
        cache_indirection: Index of the cache row that holds each position of a row, int32. By default each row of the
            batch reads its own row of the cache.
    """
    batch, heads, _, width = keys.shape
    batch = batch if cache_indirection is None else len(cache_indirection)
    mask_strides = [0, 0] if mask is None else [mask.stride(axis) if mask.size(axis) > 1 else 0 for axis in (0, 2)]
    return AttentionArgs(
        None, keys.data_ptr(), values.data_ptr(), None if mask is None else mask.data_ptr(), None,
        None if cache_indirection is None else cache_indirection.data_ptr(), None, None,
        batch, queries, positions, heads, heads, width, 0, 0,
        *keys.stride()[:3], *values.stride()[:3], *mask_strides,
        0 if cache_indirection is None else cache_indirection.stride(0),
        1 / math.sqrt(width), keys.dtype == torch.bfloat16, 0, 0,
    )  # fmt: skip


def append_to_cache(new: Float[Tensor, "B D"], cache: Float[Tensor, "B H L E"], positions: Int[Tensor, " B"]) -> None:
    """Writes the key or value of one new position per row into a cache, in place.

    Args:
        new: New keys or values of all heads, concatenated.
        cache: Cached keys or values, float32 or bfloat16.
        positions: Position at which each row is written, less than L.
    """
    compiled = library()
    rows, heads, _, width = cache.shape
    if compiled is None:
        cache[torch.arange(rows), :, positions] = new.unflatten(1, (heads, width)).to(cache.dtype)
        return
    positions = positions.long().contiguous()
    new = new.float()
    compiled.transformer_append_to_cache(
        new.data_ptr(), new.stride(0), cache.data_ptr(), rows, heads, width,
        *cache.stride()[:3], positions.data_ptr(), None, cache.dtype == torch.bfloat16,
    )  # fmt: skip


def reorder_cache(
    cache: Float[Tensor, "B H L E"], rows: Int[Tensor, " R"], length: int
) -> Float[Tensor, "R H L E"] | None:
    """Selects rows of a cache in place, copying the first `length` positions only.

    Args:
        cache: Cached keys or values.
        rows: Indices of the rows to select. They may repeat.
        length: Number of positions in use.

    Returns:
        A view of the first R rows of the cache. None if the kernel does not support the layout, or if more rows are
        selected than the cache has.
    """
    compiled = library()
    n_rows, heads, _, width = cache.shape
    if compiled is None or len(rows) > n_rows or cache.stride()[2:] != (width, 1):
        return None
    rows, size = rows.contiguous(), cache.element_size()
    compiled.transformer_reorder_cache(
        cache.data_ptr(), n_rows, rows.data_ptr(), len(rows), heads, cache.stride(0) * size, cache.stride(1) * size,
        length * width * size,
    )  # fmt: skip
    return cache[: len(rows)]
