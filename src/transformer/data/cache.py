"""A cache folder of prepared data: each entry is named by a fingerprint of everything that determines it."""

import fcntl
import json
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from transformer.data.fingerprint import fingerprint_of
from transformer.errors import DataError
from transformer.storage.disk_space import check_space, describe_bytes, free_bytes
from transformer.storage.verified_folder import FolderType, Manifest, VerifiedFolder, write_verified_folder


class PreparedManifest(Manifest):
    """The manifest of a cache entry, with the values that determine its content."""

    facts: dict[str, object]


LEAST_SHARE: Final = 1 / 16
USUAL_SHARE: Final = 1 / 2
"""Bytes of tokens for each byte of text: a token takes 2 bytes or more, and stands for 4 bytes of text, never for 32
on average."""
PREPARED: Final = FolderType("prepared corpus", DataError, PreparedManifest, format=1, depth=2)


class PreparedDataCache:
    """A cache of entries, verified folders that never change; a damaged entry is written again.

    A lock lets one process at a time write an entry, and the other processes then use it.

    Attributes:
        notes: Notes for the user about entries that were damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[str] = []

    def check_space(self, texts: Sequence[Path]) -> None:
        """Checks that the tokens of texts fit on the disk; a note warns if they may not.

        Args:
            texts: Files to be encoded; of a compressed one, only the compressed size is known.

        Raises:
            OutputError: The tokens cannot fit.
        """
        n_bytes = sum(path.stat().st_size for path in texts)
        check_space(self.folder, round(n_bytes * LEAST_SHARE), "the prepared data")
        free, usual = free_bytes(self.folder), n_bytes * USUAL_SHARE
        if free is not None and free < usual:
            self.notes.append(
                f"warning: {self.folder}: prepared data usually takes {describe_bytes(usual)} for texts of this size, "
                f"but {describe_bytes(free)} are free"
            )

    def get_or_create(self, kind: str, facts: Mapping[str, object], write: Callable[[Path], None]) -> Path:
        """Returns the folder of an entry, which is written first if it does not exist.

        Args:
            kind: Prefix of the entry's name; the fingerprint of the facts follows it.
            facts: JSON values that determine the content.
            write: Function that fills an empty folder. If it fails, nothing remains of the entry.
        """
        path = self.folder / f"{kind}-{fingerprint_of(facts)}"
        if path.exists() and not _find_damage(path, facts):
            return path
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock(path.name):
            damage = _find_damage(path, facts) if path.exists() else "missing"
            if not damage:  # another process has written it meanwhile
                return path
            if path.exists():
                self.notes.append(f"prepared again: {damage.partition(';')[0]}")
                shutil.rmtree(path)
            for unfinished in self.folder.glob(f".writing-{path.name}-*"):  # left by a process that was killed
                shutil.rmtree(unfinished)
            write_verified_folder(path, PREPARED, {"facts": facts}, write)
        return path

    @contextmanager
    def _lock(self, name: str) -> Generator[None]:
        with (self.folder / f".lock-{name}").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _find_damage(path: Path, facts: Mapping[str, object]) -> str | None:
    """Returns a description of the damage of an entry, or None if it is intact."""
    try:
        entry = VerifiedFolder(path, PREPARED)
        entry.verify_all()
    except DataError as error:
        return str(error)
    return None if entry.manifest.facts == json.loads(json.dumps(facts)) else f"{path} is of another corpus"
