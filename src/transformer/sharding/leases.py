"""Leases: who works on a shard, as files in a folder that all workers share."""

import os
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final, Protocol
from uuid import uuid4

from transformer.errors import OutputError
from transformer.storage.atomic import FOLDER_ADVICE, named_errors

LEASE_SECONDS: Final = 120.0
"""Time after which a lease that was not renewed expires, and another worker may take the shard."""
RENEWALS: Final = 4
"""Number of renewals within the time of a lease."""


class LeaseStore(Protocol):
    """Access of a scheduler to the leases and results of all workers."""

    def finished(self) -> set[int]:
        """Returns the shards whose results are listed; a network share may show a list that is half a minute old."""
        ...

    def is_finished(self, shard: int) -> bool:
        """Whether the result of a shard is there now."""
        ...

    def leased(self) -> set[int]:
        """Returns the shards that a worker holds whose lease has not expired."""
        ...

    def acquire(self, shard: int) -> bool:
        """Takes a shard that is free or whose lease has expired; returns whether this worker holds it now."""
        ...

    def release(self, shard: int) -> None:
        """Gives up a shard that this worker holds."""
        ...

    def ages(self) -> Mapping[int, float]:
        """Returns the seconds since a worker took each shard that is held and that nobody repeats."""
        ...

    def acquire_again(self, shard: int) -> bool:
        """Takes the right to repeat a shard; returns whether this worker is the only one that repeats it."""
        ...

    def release_again(self, shard: int) -> None:
        """Gives up the right to repeat a shard."""
        ...


class LeaseFolder:
    """Leases as files.

    A lease is a file that is created with `O_EXCL`, which one of several workers can do; it is atomic on NFS from
    version 3 on. It holds the name of the worker and the time at which it was taken. Its modification time is renewed
    while the worker lives. The age of a lease is the difference to the modification time of a file that this worker
    touches, so only the clock of the file server matters.

    If a worker is held up for longer than a lease lasts, another one does the same work. Results are replaced as a
    whole and depend on nothing but the shard, so this costs time alone.

    Args:
        folder: Folder of the leases.
        seconds: Time after which a lease that was not renewed expires.
    """

    def __init__(self, folder: Path, seconds: float = LEASE_SECONDS) -> None:
        self.folder, self.seconds = folder, seconds
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        with named_errors(folder, FOLDER_ADVICE):
            folder.mkdir(parents=True, exist_ok=True)
        self._clock = folder / f".clock-{self.owner}"
        self._taken = set[str]()  # names that this worker may hold

    def held(self) -> set[str]:
        """Returns the names of the leases that have not expired."""
        now = self._now()
        with os.scandir(self.folder) as entries:
            return {entry.name for entry in entries if not entry.name.startswith(".") and not self._expired(entry, now)}

    def age(self, name: str) -> float:
        """Returns the seconds since a lease was taken; 0 if it is not held, or somebody is just taking it."""
        with suppress(OSError, ValueError):
            return self._now() - float((self.folder / name).read_text(encoding="utf-8").partition("\n")[2])
        return 0.0

    def acquire(self, name: str) -> bool:
        """Takes a lease that nobody holds or that has expired; returns whether this worker holds it now."""
        path = self.folder / name
        self._taken.add(name)  # before the file is there, so that an interruption leaves none behind
        if self._create(path):
            return True
        with suppress(FileNotFoundError):
            if self._now() - path.stat().st_mtime > self.seconds:
                expired = self.folder / f".expired-{name}-{self.owner}"
                path.rename(expired)  # only one of several workers finds the file
                expired.unlink()
                return self._create(path)
        return False

    def renew(self, name: str) -> bool:
        """Extends a lease; returns False if another worker holds it now."""
        path = self.folder / name
        if not self._is_own(path):
            return False
        with suppress(FileNotFoundError):
            os.utime(path)
        return True

    def release(self, name: str) -> None:
        """Gives up a lease if this worker holds it."""
        path = self.folder / name
        if self._is_own(path):
            path.unlink(missing_ok=True)
        self._taken.discard(name)

    @contextmanager
    def renewed(self, name: str) -> Generator[None]:
        """Renews a lease while the block runs, and releases it at its end."""
        ended = Event()

        def renew() -> None:
            while not ended.wait(self.seconds / RENEWALS):
                with suppress(OSError):  # a share that is gone for a while: the lease may expire meanwhile
                    self.renew(name)

        thread = Thread(target=renew, name=f"lease {name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.release(name)

    def close(self) -> None:
        """Gives up all leases, and removes the file that tells the time."""
        for name in list(self._taken):
            self.release(name)
        self._clock.unlink(missing_ok=True)

    def _create(self, path: Path) -> bool:
        now = self._now()
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        try:
            with named_errors(path, FOLDER_ADVICE), os.fdopen(descriptor, "w") as file:
                file.write(f"{self.owner}\n{now!r}")
        except OutputError:
            path.unlink(missing_ok=True)  # it names nobody, so nobody would release it
            raise
        return True

    def _is_own(self, path: Path) -> bool:
        with suppress(OSError):
            return path.read_text(encoding="utf-8").partition("\n")[0] == self.owner
        return False

    def _now(self) -> float:
        """Returns the time of the file server."""
        self._clock.touch()
        return self._clock.stat().st_mtime

    def _expired(self, entry: "os.DirEntry[str]", now: float) -> bool:
        try:
            return now - entry.stat().st_mtime > self.seconds
        except FileNotFoundError:  # released meanwhile
            return True
