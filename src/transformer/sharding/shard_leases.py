"""Leases of the shards of a job."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from transformer.sharding.job import Job

AGAIN: Final = "-again"
"""End of the names of the leases of workers that repeat the shard of another one."""


class ShardLeases:
    """The leases of the shards of a job."""

    def __init__(self, job: "Job") -> None:
        self._job = job

    def finished(self) -> set[int]:
        """Implements `LeaseStore.finished`."""
        return self._job.finished()

    def is_finished(self, shard: int) -> bool:
        """Implements `LeaseStore.is_finished`."""
        return self._job.has_result(shard)

    def leased(self) -> set[int]:
        """Implements `LeaseStore.leased`."""
        names = (name.removesuffix(AGAIN) for name in self._job.leases.held())
        return {int(name) for name in names if name.isdecimal()}

    def acquire(self, shard: int) -> bool:
        """Implements `LeaseStore.acquire`."""
        return self._job.leases.acquire(lease_name(shard))

    def release(self, shard: int) -> None:
        """Implements `LeaseStore.release`."""
        self._job.leases.release(lease_name(shard))

    def ages(self) -> dict[int, float]:
        """Implements `LeaseStore.ages`."""
        names = self._job.leases.held()
        once = {name for name in names if name.isdecimal() and f"{name}{AGAIN}" not in names}
        return {int(name): self._job.leases.age(name) for name in once}

    def acquire_again(self, shard: int) -> bool:
        """Implements `LeaseStore.acquire_again`."""
        return self._job.leases.acquire(lease_name(shard, AGAIN))

    def release_again(self, shard: int) -> None:
        """Implements `LeaseStore.release_again`."""
        self._job.leases.release(lease_name(shard, AGAIN))


def lease_name(shard: int, end: str = "") -> str:
    """Returns the name of the lease of a shard."""
    return f"{shard:05d}{end}"
