"""Key-value cache of fused decoder layers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from transformer.blocks.cache import KeyValueCache


@dataclass
class FusedCache(KeyValueCache):
    """A `KeyValueCache` that reorders rows by indirection, without copying keys or values.

    All rows must be at the same position.

    Attributes:
        cache_indirection: Row of the cache that stores each position of a row; None means its own row.
    """

    cache_indirection: Int[Tensor, "B L"] | None = None

    def with_indirection(self) -> "FusedCache":
        """Returns the same cache with an indirection table in which every row refers to itself."""
        return replace(self, cache_indirection=self._identity_indirection(self.keys.size(2)))

    def _identity_indirection(self, positions: int) -> Int[Tensor, "B L"]:
        """Returns a table in which every row stores its own positions."""
        rows = torch.arange(self.keys.size(0), dtype=torch.int32, device=self.keys.device)
        return rows[:, None].repeat(1, positions)

    def first(self, length: int) -> "FusedCache":
        """Implements `KeyValueCache.first`."""
        cache_indirection = None if self.cache_indirection is None else self.cache_indirection[:, :length]
        return FusedCache(self.keys[:, :, :length], self.values[:, :, :length], cache_indirection)

    def grow(self, positions: int) -> None:
        """Implements `KeyValueCache.grow`."""
        super().grow(positions)
        if self.cache_indirection is not None:
            self.cache_indirection = torch.cat([self.cache_indirection, self._identity_indirection(positions)], dim=1)

    def reorder_cache(
        self, caches: Sequence[KeyValueCache], rows: Int[Tensor, " B"], length: int
    ) -> list[KeyValueCache]:
        """Implements `SupportsReordering.reorder_cache`: only the indirection table changes, which the layers share."""
        table = self.cache_indirection
        table = self._identity_indirection(self.keys.size(2)) if table is None else table
        cache_indirection = table.index_select(0, rows)
        cache_indirection[:, length - 1] = rows  # the rows that wrote the last position
        return [FusedCache(cache.keys, cache.values, cache_indirection) for cache in caches]

    def select(self, rows: Int[Tensor, " R"], length: int, shortest: int = 0) -> KeyValueCache:
        """Implements `KeyValueCache.select`; copies every position of a row into its own row."""
        if self.cache_indirection is None:
            return super().select(rows, length, shortest)
        sources, positions = self.cache_indirection[rows].long(), torch.arange(self.keys.size(2), device=rows.device)
        keys, values = (x[sources, :, positions].transpose(1, 2).contiguous() for x in (self.keys, self.values))
        return FusedCache(keys, values).with_indirection()
