"""The caches of packed layers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transformer.blocks.cache import KeyValueCache
from transformer.kernels import cached, reorder
from transformer.kernels.attention import Attention


@dataclass
class PackedCache(KeyValueCache):
    """As `KeyValueCache`; what moves is copied in place."""

    _read: Attention | None = field(default=None, init=False, repr=False, compare=False)
    """How these keys and values are read: the same at every step, but for how many."""
    _mask: Tensor | None = field(default=None, init=False, repr=False, compare=False)
    """Under which."""

    def as_target(self, positions: int, last: Int[Tensor, " B"]) -> Attention:
        """Attention of one new position a row to those up to its `last`, of so many."""
        if self._read is None:
            self._read = self._described()
        self._read.positions, self._read.last = positions, last.data_ptr()
        return self._read

    def as_source(self, mask: Bool[Tensor, "N 1 1 S"], width: int) -> Attention:
        """Attention of so many rows a sentence."""
        if self._read is None or self._mask is not mask or self._read.queries != width:
            self._read, self._mask = cached(self.keys, self.values, mask.size(3), width, mask=mask), mask
        return self._read

    def _described(self) -> Attention:
        return cached(self.keys, self.values, 0, 1)

    def select(self, rows: Int[Tensor, " R"], length: int, shortest: int = 0) -> KeyValueCache:
        """As `KeyValueCache.select`."""
        keys, values = (reorder(cached, rows, length) for cached in (self.keys, self.values))
        if keys is None or values is None:
            return super().select(rows, length, shortest)
        return type(self)(keys, values)


@dataclass
class IndirectKVCache(PackedCache):
    """As `PackedCache`, of rows that go on from one another: what they have in common is held once, and never moves.

    A row writes its new position into a row of the cache that nobody has written that position to, its own. This is so
    as long as all rows write the same position; where they do not, each gets all of its positions in its own row.

    Attributes:
        keys: of all that was written, of at least as many rows as there are now.
        values: likewise.
        cache_indirection: which row of them holds each position of a row; its own where not given.
    """

    cache_indirection: Int[Tensor, "R L"] | None = None

    def select(self, rows: Int[Tensor, " R"], length: int, shortest: int = 0) -> KeyValueCache:
        """As `KeyValueCache.select`."""
        if shortest < length or rows.numel() > self.keys.size(0):
            return PackedCache.select(self.materialize(), rows, length, shortest)
        cache_indirection = self.cache_indirection
        cache_indirection = (
            _numbers(self.keys.size(0)).expand(-1, self.keys.size(2))
            if cache_indirection is None
            else cache_indirection
        )
        cache_indirection = cache_indirection.index_select(0, rows)
        cache_indirection[:, length:] = _numbers(rows.numel())
        return self._held_by(cache_indirection)

    def _held_by(self, cache_indirection: Int[Tensor, "R L"]) -> "IndirectKVCache":
        other = IndirectKVCache(self.keys, self.values, cache_indirection)
        if self._read is not None and self.cache_indirection is not None:
            other._read, read = self._read, self._read
            read.cache_indirection, read.holders_stride, read.batch = (
                cache_indirection.data_ptr(),
                cache_indirection.stride(0),
                len(cache_indirection),
            )
        return other

    @classmethod
    def selected(
        cls, caches: Sequence[KeyValueCache], rows: Int[Tensor, " R"], length: int, shortest: int
    ) -> list[KeyValueCache]:
        """As `KeyValueCache.selected`; the layers share one table of holders."""
        before = cast(IndirectKVCache, caches[0]).cache_indirection
        first = cast(IndirectKVCache, caches[0].select(rows, length, shortest))
        shared = [each for each in caches if isinstance(each, IndirectKVCache) and each.cache_indirection is before]
        if first.cache_indirection is None or len(shared) < len(caches):
            return [first, *(each.select(rows, length, shortest) for each in caches[1:])]
        return [first, *(each._held_by(first.cache_indirection) for each in shared[1:])]

    def materialize(self) -> "IndirectKVCache":
        """This cache, with every position of a row in its own row."""
        if self.cache_indirection is not None:
            held, places = self.cache_indirection.long(), torch.arange(self.keys.size(2))
            self.keys, self.values = (
                cached[held, :, places].transpose(1, 2).contiguous() for cached in (self.keys, self.values)
            )
            self.cache_indirection, self._read = None, None
        return self

    def first(self, length: int) -> KeyValueCache:
        """As `KeyValueCache.first`, of this cache with its positions apart."""
        return super(IndirectKVCache, self.materialize()).first(length)

    def grow(self, positions: int) -> KeyValueCache:
        """As `KeyValueCache.grow`."""
        return super(IndirectKVCache, self.materialize()).grow(positions)

    def _described(self) -> Attention:
        return cached(self.keys, self.values, 0, 1, cache_indirection=self.cache_indirection)

    def join(self, other: KeyValueCache) -> KeyValueCache:
        """As `KeyValueCache.join`."""
        return super(IndirectKVCache, self.materialize()).join(
            other.materialize() if isinstance(other, IndirectKVCache) else other
        )


_NUMBERED: Final[list[Tensor]] = []
"""One tensor of which all numbers are views: one for each count, kept in between, would part the memory of others."""


def _numbers(n: int) -> Int[Tensor, "N 1"]:
    """The rows' own numbers."""
    if not _NUMBERED or len(_NUMBERED[0]) < n:
        _NUMBERED[:] = [torch.arange(max(2 * n, 1024), dtype=torch.int32)]
    return _NUMBERED[0][:n, None]
