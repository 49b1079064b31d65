"""The cache of fused layers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from transformer.blocks.cache import KeyValueCache


@dataclass
class FusedCache(KeyValueCache):
    """As `KeyValueCache`, of rows that stand at one position and may go on from one another without being copied.

    Attributes:
        cache_indirection: which row of the cache holds each position that a row has written; its own where not given.
    """

    cache_indirection: Int[Tensor, "B L"] | None = None

    def tensors(self) -> list[Tensor]:
        """As `KeyValueCache.tensors`."""
        return [*super().tensors(), *([] if self.cache_indirection is None else [self.cache_indirection])]

    def shared(self) -> "FusedCache":
        """The same, where rows may go on from one another."""
        return replace(self, cache_indirection=self._own(self.keys.size(2)))

    def _own(self, positions: int) -> Int[Tensor, "B L"]:
        """Holders of so many positions of which every row holds its own."""
        rows = torch.arange(self.keys.size(0), dtype=torch.int32, device=self.keys.device)
        return rows[:, None].repeat(1, positions)

    def first(self, length: int) -> "FusedCache":
        """As `KeyValueCache.first`."""
        cache_indirection = None if self.cache_indirection is None else self.cache_indirection[:, :length]
        return FusedCache(self.keys[:, :, :length], self.values[:, :, :length], cache_indirection)

    def grow(self, positions: int) -> "FusedCache":
        """As `KeyValueCache.grow`."""
        cache_indirection = (
            None if self.cache_indirection is None else torch.cat([self.cache_indirection, self._own(positions)], dim=1)
        )
        keys, values = (F.pad(each, (0, 0, 0, positions)) for each in (self.keys, self.values))
        return FusedCache(keys, values, cache_indirection)

    @classmethod
    def reorder_cache(
        cls, caches: Sequence[KeyValueCache], rows: Int[Tensor, " B"], length: int
    ) -> list[KeyValueCache]:
        """As `KeyValueCache.reorder_cache`; no key and no value moves."""
        first = caches[0]
        assert isinstance(first, FusedCache)
        assert first.cache_indirection is not None
        cache_indirection = first.cache_indirection.index_select(0, rows)
        cache_indirection[:, length - 1] = rows  # who wrote the last position
        return [FusedCache(cache.keys, cache.values, cache_indirection) for cache in caches]

    def select(self, rows: Int[Tensor, " R"], length: int, shortest: int = 0) -> KeyValueCache:
        """As `KeyValueCache.select`; every position of a row is then in its own row again."""
        if self.cache_indirection is None:
            return super().select(rows, length, shortest)
        held, places = self.cache_indirection[rows].long(), torch.arange(self.keys.size(2), device=rows.device)
        keys, values = (x[held, :, places].transpose(1, 2).contiguous() for x in (self.keys, self.values))
        return FusedCache(keys, values).shared()
