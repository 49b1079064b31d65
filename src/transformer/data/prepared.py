"""A folder of prepared data: what was worked out once, under the fingerprint of all that decides it."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from transformer.data.fingerprint import file_sum, fingerprint_of

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1


class PreparedFolder:
    """Holds entries, folders that are there whole or not at all and never change.

    An entry is written under a temporary name and renamed when complete; a lock lets one process at a time write the
    same entry, and the others find it done. Its manifest names every file with size and SHA-256; an entry that does
    not match is written again.

    Attributes:
        notes: what the user should know of entries found, made and found damaged.
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
        name = f"{kind}-{fingerprint_of(facts)}"
        path = self.folder / name
        if (path / MANIFEST).exists() and not _damage(path, facts):
            return path
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock(name):
            if not path.exists():
                self._write(path, facts, write)
            elif damage := _damage(path, facts):  # else another process was first
                self.notes.append(f"{path}: {damage}; prepared again")
                shutil.rmtree(path)
                self._write(path, facts, write)
        return path

    def _write(self, path: Path, facts: dict[str, Any], write: Callable[[Path], None]) -> None:
        temporary = path.with_name(f".writing-{path.name}")
        shutil.rmtree(temporary, ignore_errors=True)  # left by a process that was killed
        temporary.mkdir()
        try:
            write(temporary)
            _seal(temporary, facts)
            temporary.rename(path)
            _sync(path.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    @contextmanager
    def _lock(self, name: str) -> Generator[None]:
        with (self.folder / f".lock-{name}").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _seal(folder: Path, facts: dict[str, Any]) -> None:
    """Writes the manifest and waits until all is on disk."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    sums = {name: {"size": path.stat().st_size, "sha256": file_sum(path)} for name, path in files.items()}
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"format": FORMAT, "facts": facts, "files": sums}, indent=2), encoding="utf-8")
    for path in (*files.values(), manifest, *(path for path in folder.rglob("*") if path.is_dir()), folder):
        _sync(path)


def _damage(folder: Path, facts: dict[str, Any]) -> str | None:
    """What is wrong with an entry, if anything."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT or manifest["facts"] != json.loads(json.dumps(facts)):
            return "it is of another version or corpus"
        for name, expected in manifest["files"].items():
            size = (folder / name).stat().st_size
            if size != expected["size"]:
                return f"{name} has {size:,} bytes, not {expected['size']:,}"
            if file_sum(folder / name) != expected["sha256"]:
                return f"{name} does not match its checksum"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"it cannot be read ({error})"
    return None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
