"""The choice of shards, and the place of a process among others."""

import pytest

from transformer.sharding.environment import Place, find_place
from transformer.sharding.scheduler import Scheduler


class Memory:
    """Leases of all workers, in memory."""

    def __init__(self) -> None:
        self.done, self.held, self.again = set[int](), set[int](), set[int]()

    def finished(self) -> set[int]:
        """Implements `LeaseStore.finished`."""
        return set(self.done)

    def is_finished(self, shard: int) -> bool:
        """Implements `LeaseStore.is_finished`."""
        return shard in self.done

    def leased(self) -> set[int]:
        """Implements `LeaseStore.leased`."""
        return set(self.held)

    def acquire(self, shard: int) -> bool:
        """Implements `LeaseStore.acquire`."""
        is_free = shard not in self.held
        self.held.add(shard)
        return is_free

    def release(self, shard: int) -> None:
        """Implements `LeaseStore.release`."""
        self.held.discard(shard)

    def ages(self) -> dict[int, float]:
        """Implements `LeaseStore.ages`: the lower shards are older."""
        return {shard: 100.0 - shard for shard in self.held - self.again}

    def acquire_again(self, shard: int) -> bool:
        """Implements `LeaseStore.acquire_again`."""
        is_free = shard not in self.again
        self.again.add(shard)
        return is_free

    def release_again(self, shard: int) -> None:
        """Implements `LeaseStore.release_again`."""
        self.again.discard(shard)


def test_workers_begin_apart_and_share_all_shards() -> None:
    """Catches a shard that nobody takes or two take."""
    store = Memory()
    workers = [Scheduler(7, store, first) for first in (0, 3)]
    assert [workers[0].next(), workers[1].next(), workers[0].next()] == [0, 3, 1]
    assert [workers[1].next() for _ in range(5)] == [4, 5, 6, 2, None]
    assert not workers[0].is_complete
    store.done = set(range(7))
    assert workers[0].is_complete


def test_a_shard_that_was_finished_meanwhile_is_given_back() -> None:
    """Catches work that is done twice because a lease ended between two looks."""
    store = Memory()
    worker = Scheduler(2, store)

    def acquire(shard: int) -> bool:
        store.done.add(0)
        return Memory.acquire(store, shard)

    store.acquire = acquire  # type: ignore[method-assign]
    assert worker.next() == 1
    assert store.held == {1}


def test_a_list_that_is_old_does_not_repeat_a_shard() -> None:
    """Catches a shard that is done twice because a network share shows an old list of results."""
    store = Memory()
    store.done = {0, 1}
    store.finished = set  # type: ignore[method-assign]
    assert Scheduler(3, store).next() == 2
    assert store.held == {2}


def test_the_shard_that_was_held_longest_is_repeated_once() -> None:
    """Catches shards that were just begun and are repeated, one that two workers repeat, and one that is finished."""
    store = Memory()
    store.held = {1, 2, 3}
    assert Scheduler(4, store).repeat(98.5) == 1
    assert Scheduler(4, store).repeat(98.5) is None
    store.done = {2}
    assert Scheduler(4, store).repeat(50.0) == 3
    assert store.again == {1, 3}


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, Place()),
        ({"RANK": "3", "WORLD_SIZE": "8"}, Place("torchrun", 3, 8)),
        (
            {"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_COUNT": "10", "SLURM_PROCID": "0"},
            Place("Slurm array", 5, 10),
        ),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, Place("Slurm", 1, 4)),
        ({"JOB_COMPLETION_INDEX": "2"}, Place("Kubernetes", 2, 1)),
        ({"RANK": "x", "JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "4"}, Place("Kubernetes", 2, 4)),
    ],
)
def test_launchers_tell_the_place_of_a_process(variables: dict[str, str], place: Place) -> None:
    """Catches a launcher whose processes all begin with the same shard."""
    assert find_place(variables) == place


def test_places_are_spread_over_the_shards() -> None:
    """Catches workers that begin side by side; an array's numbers need not begin with 0."""
    assert [Place("", rank, 4).first_of(10) for rank in range(4)] == [0, 2, 5, 7]
    assert Place("Slurm array", 17, 4).first_of(10) == 2
