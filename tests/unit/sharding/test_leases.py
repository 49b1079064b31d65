"""Leases on shards."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from transformer.sharding.leases import LeaseFolder


def age(folder: Path, name: str, seconds: float) -> None:
    """Makes a lease look as if it had not been renewed for so long."""
    time = (folder / name).stat().st_mtime - seconds
    os.utime(folder / name, (time, time))


def test_a_lease_has_one_holder(tmp_path: Path) -> None:
    """Catches two workers on one shard, and a lease that another worker gives up."""
    first, second = LeaseFolder(tmp_path), LeaseFolder(tmp_path)
    assert [first.acquire("00001"), second.acquire("00001")] == [True, False]
    second.release("00001")
    assert second.held() == {"00001"}
    first.release("00001")
    assert second.acquire("00001")


def test_of_many_workers_one_takes_a_lease(tmp_path: Path) -> None:
    """Catches a lease that is looked at and then created, with time between the two."""
    workers = [LeaseFolder(tmp_path) for _ in range(16)]
    for name in ("free", "expired"):
        if name == "expired":
            dead = LeaseFolder(tmp_path)
            assert dead.acquire(name)
            age(tmp_path, name, 2 * dead.seconds)
        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(lambda worker, lease=name: worker.acquire(lease), workers)) == 1


def test_a_lease_that_is_not_renewed_expires(tmp_path: Path) -> None:
    """Catches the shard of a dead worker that nobody does, and a worker that renews a lease which it has lost."""
    dead, other = LeaseFolder(tmp_path, 60), LeaseFolder(tmp_path, 60)
    assert dead.acquire("00001")
    age(tmp_path, "00001", 50)
    assert not other.acquire("00001")
    assert dead.renew("00001")
    age(tmp_path, "00001", 50)
    assert other.held() == {"00001"}
    age(tmp_path, "00001", 20)
    assert other.held() == set()
    assert other.acquire("00001")
    assert not dead.renew("00001")
    dead.release("00001")
    assert other.held() == {"00001"}


def test_a_lease_is_released_at_the_end_of_the_work(tmp_path: Path) -> None:
    """Catches a shard that stays locked after an error, and files that remain."""
    worker = LeaseFolder(tmp_path)
    assert worker.acquire("00001")
    try:
        with worker.renewed("00001"):
            raise ValueError
    except ValueError:
        pass
    assert worker.acquire("00002")
    other = LeaseFolder(tmp_path)
    assert other.acquire("00003")
    worker.close()
    assert {path.name for path in tmp_path.iterdir()} == {"00003", f".clock-{other.owner}"}
    assert other.age("00003") >= 0.0
    assert other.age("00002") == 0.0
