"""Key-value caches of packed layers."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transformer.blocks.cache import KeyValueCache
from transformer.kernels import attention_args, reorder_cache
from transformer.kernels.attention import AttentionArgs


@dataclass
class PackedCache(KeyValueCache):
    """Same as `KeyValueCache`, but rows are reordered in place by a kernel."""

    _descriptor: AttentionArgs | None = field(default=None, init=False, repr=False, compare=False)
    """Kernel arguments for reading these keys and values; only their number changes between steps."""
    _mask: Tensor | None = field(default=None, init=False, repr=False, compare=False)
    """Mask that `_descriptor` refers to."""

    def describe_self_attention(self, positions: int, last: Int[Tensor, " B"]) -> AttentionArgs:
        """Describes attention of one new position per row to the first `positions`, up to the row's `last` one."""
        self.reserve(positions)
        if self._descriptor is None:
            self._descriptor = self._describe()
        self._descriptor.positions, self._descriptor.last = positions, last.data_ptr()
        return self._descriptor

    def describe_cross_attention(self, mask: Bool[Tensor, "N 1 1 S"], width: int) -> AttentionArgs:
        """Describes attention of `width` rows per sentence to its source positions."""
        if self._descriptor is None or self._mask is not mask or self._descriptor.queries != width:
            self._descriptor, self._mask = attention_args(self.keys, self.values, mask.size(3), width, mask=mask), mask
        return self._descriptor

    def _describe(self) -> AttentionArgs:
        return attention_args(self.keys, self.values, 0, 1)

    def grow(self, positions: int) -> None:
        """Implements `KeyValueCache.grow`; the arguments refer to the old memory."""
        super().grow(positions)
        self._descriptor = None

    def select(self, rows: Int[Tensor, " R"], length: int, shortest: int = 0) -> KeyValueCache:
        """Implements `KeyValueCache.select`."""
        if not length:
            return super().select(rows, length, shortest)
        keys, values = (reorder_cache(cached, rows, length) for cached in (self.keys, self.values))
        if keys is None or values is None:
            return super().select(rows, length, shortest)
        return type(self)(keys, values)


@dataclass
class IndirectKVCache(PackedCache):
    """A `PackedCache` that reorders rows by indirection: hypotheses share their common positions, which never move.

    TensorRT-LLM calls this table `cache_indirection`. Each row writes its new position into its own row of the cache,
    where no other row reads that position. This holds as long as all rows write the same position; otherwise,
    `materialize` copies all positions of each row into its own row.

    Attributes:
        keys: Keys of all positions, of at least as many rows as there are now.
        values: Values of all positions, likewise.
        cache_indirection: Row of the cache that stores each position of a row; None means its own row.
    """

    cache_indirection: Int[Tensor, "R L"] | None = None

    def select(self, rows: Int[Tensor, " R"], length: int, shortest: int = 0) -> KeyValueCache:
        """Implements `KeyValueCache.select`."""
        if shortest < length or rows.numel() > self.keys.size(0):
            return PackedCache.select(self.materialize(), rows, length, shortest)
        stored_rows, capacity = self.keys.size(0), self.keys.size(2)
        cache_indirection = _select_rows(self.cache_indirection, rows, length, stored_rows, capacity)
        other = IndirectKVCache(self.keys, self.values, cache_indirection)
        if self._descriptor is not None and self.cache_indirection is not None:
            other._descriptor = descriptor = self._descriptor
            descriptor.cache_indirection, descriptor.indirection_stride, descriptor.batch = (
                cache_indirection.data_ptr(),
                cache_indirection.stride(0),
                len(cache_indirection),
            )
        return other

    def materialize(self) -> "IndirectKVCache":
        """Copies every position of a row into its own row; returns this cache, without indirection."""
        if self.cache_indirection is not None:
            rows, positions = self.cache_indirection.long(), torch.arange(self.keys.size(2))
            self.keys, self.values = (
                cache[rows, :, positions].transpose(1, 2).contiguous() for cache in (self.keys, self.values)
            )
            self.cache_indirection, self._descriptor = None, None
        return self

    def first(self, length: int) -> KeyValueCache:
        """Implements `KeyValueCache.first`, after `materialize`."""
        return super(IndirectKVCache, self.materialize()).first(length)

    def grow(self, positions: int) -> None:
        """Implements `KeyValueCache.grow`, after `materialize`."""
        super(IndirectKVCache, self.materialize()).grow(positions)

    def _describe(self) -> AttentionArgs:
        return attention_args(self.keys, self.values, 0, 1, cache_indirection=self.cache_indirection)


@lru_cache(maxsize=1)  # the layers share one table: the first computes it, the others find it here
def _select_rows(
    table: Int[Tensor, "R L"] | None, rows: Int[Tensor, " N"], length: int, stored_rows: int, capacity: int
) -> Int[Tensor, "N L"]:
    """Returns the indirection table of selected rows, whose positions from `length` on are their own.

    Args:
        table: Table before the selection; None if every row stores its own positions.
        rows: Indices of the selected rows.
        length: Number of positions in use.
        stored_rows: Number of rows of the cache.
        capacity: Number of positions of the cache.
    """
    table = _row_indices(stored_rows).expand(-1, capacity) if table is None else table
    table = table.index_select(0, rows)
    table[:, length:] = _row_indices(rows.numel())
    return table


_ROW_INDICES: Final[list[Tensor]] = []
"""One tensor that all row indices are views of: a new one for each count would fragment the heap."""


def _row_indices(n: int) -> Int[Tensor, "N 1"]:
    """Returns the indices of n rows."""
    if not _ROW_INDICES or len(_ROW_INDICES[0]) < n:
        _ROW_INDICES[:] = [torch.arange(max(2 * n, 1024), dtype=torch.int32)]
    return _ROW_INDICES[0][:n, None]
