"""A folder of prepared data: what was worked out once, under the fingerprint of all that decides it."""

import fcntl
import json
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from transformer.data.fingerprint import fingerprint_of
from transformer.errors import DataError
from transformer.storage.verified_folder import FolderType, Manifest, VerifiedFolder, write_verified_folder


class PreparedManifest(Manifest):
    """What an entry holds, and the facts that decide it."""

    facts: dict[str, Any]


PREPARED: Final = FolderType("prepared corpus", DataError, PreparedManifest, format=1, depth=2)


class PreparedDataCache:
    """Holds entries, verified folders that never change; one that is damaged is written again.

    A lock lets one process at a time write an entry, and the others find it done.

    Attributes:
        notes: what the user should know of entries found damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[str] = []

    def entry(self, kind: str, facts: dict[str, Any], write: Callable[[Path], None]) -> Path:
        """The folder of an entry, written if it is not there.

        Args:
            kind: names it, beside the fingerprint of the facts.
            facts: values of JSON that decide what it holds.
            write: fills an empty folder. Where it fails, nothing is left.
        """
        path = self.folder / f"{kind}-{fingerprint_of(facts)}"
        if path.exists() and not _damage(path, facts):
            return path
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock(path.name):
            damage = _damage(path, facts) if path.exists() else "missing"
            if not damage:  # another process was first
                return path
            if path.exists():
                self.notes.append(f"prepared again: {damage.partition(';')[0]}")
                shutil.rmtree(path)
            for left in self.folder.glob(f".writing-{path.name}-*"):  # by a process that was killed
                shutil.rmtree(left)
            write_verified_folder(path, PREPARED, {"facts": facts}, write)
        return path

    @contextmanager
    def _lock(self, name: str) -> Generator[None]:
        with (self.folder / f".lock-{name}").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _damage(path: Path, facts: dict[str, Any]) -> str | None:
    """What is wrong with an entry, if anything."""
    try:
        verified = VerifiedFolder(path, PREPARED)
        verified.verify_all()
    except DataError as error:
        return str(error)
    return None if verified.manifest.facts == json.loads(json.dumps(facts)) else f"{path} is of another corpus"
