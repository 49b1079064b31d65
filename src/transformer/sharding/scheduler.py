"""The choice of the next shard of a worker."""

from collections.abc import Sequence

from transformer.sharding.leases import LeaseStore


class Scheduler:
    """Chooses shards for a worker, until all are finished.

    Each worker takes the next shard that is neither finished nor held by another one. So fast workers do more, and the
    shards of a worker that died are done by others when its leases have expired. The last shards of several workers end
    about one shard apart: the more shards, the shorter the wait. The last shards of slow workers are repeated.

    Args:
        n_shards: Number of shards.
        store: The leases of all workers.
        first: Shard that this worker tries first, so that workers that start together rarely try the same.
    """

    def __init__(self, n_shards: int, store: LeaseStore, first: int = 0) -> None:
        self._store = store
        self._order: Sequence[int] = [*range(first % max(1, n_shards), n_shards), *range(first % max(1, n_shards))]

    @property
    def is_complete(self) -> bool:
        """Whether the results of all shards are there."""
        return len(self._store.finished()) == len(self._order)

    def next(self) -> int | None:
        """Takes a shard; returns None if all are finished or held by workers that live."""
        unavailable = self._store.finished() | self._store.leased()
        for shard in self._order:
            if shard not in unavailable and self._store.acquire(shard):
                if not self._store.is_finished(shard):
                    return shard
                self._store.release(shard)  # another worker finished it since it was listed
        return None

    def repeat(self, seconds: float) -> int | None:
        """Takes a shard that another worker has held for long, to finish it before that one (speculative execution).

        This is for a worker that finds no other shard. Results do not depend on the worker, so the first one holds, and
        the other one is dropped.

        Args:
            seconds: Time in which this worker does a shard; only those that were held for longer are repeated.

        Returns:
            The shard that was held longest; None if there is none, or others repeat all of them.
        """
        ages, finished = self._store.ages(), self._store.finished()
        for shard in sorted(ages.keys() - finished, key=lambda shard: (-ages[shard], shard)):
            if ages[shard] <= seconds:
                break
            if self._store.acquire_again(shard):
                if not self._store.is_finished(shard):
                    return shard
                self._store.release_again(shard)
        return None
