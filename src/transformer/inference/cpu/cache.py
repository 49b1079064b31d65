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
class SharedCache(PackedCache):
    """As `PackedCache`, of rows that go on from one another: what they have in common is held once, and never moves.

    A row writes its new position into a row of the cache that nobody has written that position to, its own. This is so
    as long as all rows write the same position; where they do not, each gets all of its positions in its own row.

    Attributes:
        keys: of all that was written, of at least as many rows as there are now.
        values: likewise.
        holders: which row of them holds each position of a row; its own where not given.
    """

    holders: Int[Tensor, "R L"] | None = None

    def select(self, rows: Int[Tensor, " R"], length: int, shortest: int = 0) -> KeyValueCache:
        """As `KeyValueCache.select`."""
        if shortest < length or rows.numel() > self.keys.size(0):
            return PackedCache.select(self.apart(), rows, length, shortest)
        holders = self.holders
        holders = _numbers(self.keys.size(0)).expand(-1, self.keys.size(2)) if holders is None else holders
        holders = holders.index_select(0, rows)
        holders[:, length:] = _numbers(rows.numel())
        return self._held_by(holders)

    def _held_by(self, holders: Int[Tensor, "R L"]) -> "SharedCache":
        other = SharedCache(self.keys, self.values, holders)
        if self._read is not None and self.holders is not None:
            other._read, read = self._read, self._read
            read.holders, read.holders_stride, read.batch = holders.data_ptr(), holders.stride(0), len(holders)
        return other

    @classmethod
    def selected(
        cls, caches: Sequence[KeyValueCache], rows: Int[Tensor, " R"], length: int, shortest: int
    ) -> list[KeyValueCache]:
        """As `KeyValueCache.selected`; the layers share one table of holders."""
        before = cast(SharedCache, caches[0]).holders
        first = cast(SharedCache, caches[0].select(rows, length, shortest))
        shared = [each for each in caches if isinstance(each, SharedCache) and each.holders is before]
        if first.holders is None or len(shared) < len(caches):
            return [first, *(each.select(rows, length, shortest) for each in caches[1:])]
        return [first, *(each._held_by(first.holders) for each in shared[1:])]

    def apart(self) -> "SharedCache":
        """This cache, with every position of a row in its own row."""
        if self.holders is not None:
            held, places = self.holders.long(), torch.arange(self.keys.size(2))
            self.keys, self.values = (
                cached[held, :, places].transpose(1, 2).contiguous() for cached in (self.keys, self.values)
            )
            self.holders, self._read = None, None
        return self

    def first(self, length: int) -> KeyValueCache:
        """As `KeyValueCache.first`, of this cache with its positions apart."""
        return super(SharedCache, self.apart()).first(length)

    def grow(self, positions: int) -> KeyValueCache:
        """As `KeyValueCache.grow`."""
        return super(SharedCache, self.apart()).grow(positions)

    def _described(self) -> Attention:
        return cached(self.keys, self.values, 0, 1, holders=self.holders)

    def join(self, other: KeyValueCache) -> KeyValueCache:
        """As `KeyValueCache.join`."""
        return super(SharedCache, self.apart()).join(other.apart() if isinstance(other, SharedCache) else other)


_NUMBERED: Final[list[Tensor]] = []
"""One tensor of which all numbers are views: one for each count, kept in between, would part the memory of others."""


def _numbers(n: int) -> Int[Tensor, "N 1"]:
    """The rows' own numbers."""
    if not _NUMBERED or len(_NUMBERED[0]) < n:
        _NUMBERED[:] = [torch.arange(max(2 * n, 1024), dtype=torch.int32)]
    return _NUMBERED[0][:n, None]
