"""Key-value caches of packed layers that run block by block."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from transformer.blocks.cache import KeyValueCache
from transformer.kernels import reorder_cache


@dataclass
class PackedCache(KeyValueCache):
    """Same as `KeyValueCache`, but rows are reordered in place by a kernel."""

    def select(self, rows: Int[Tensor, " R"], length: int, shortest: int = 0) -> KeyValueCache:
        """Implements `KeyValueCache.select`."""
        if not length:
            return super().select(rows, length, shortest)
        keys, values = (reorder_cache(cached, rows, length) for cached in (self.keys, self.values))
        if keys is None or values is None:
            return super().select(rows, length, shortest)
        return type(self)(keys, values)
