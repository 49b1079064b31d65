"""A folder of files that is complete and unchanged, or refused."""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError

from transformer.config import Config
from transformer.errors import TransformerError
from transformer.storage.atomic import sync, sync_tree

MANIFEST: Final = "manifest.json"
MANIFEST_SUM: Final = "manifest.sha256"
MAX_MANIFEST_BYTES: Final = 1 << 24


class Entry(Config):
    """One file of a sealed folder."""

    sha256: str
    size: int


class Manifest(Config):
    """What a sealed folder holds.

    Attributes:
        format: number of the layout.
        files: path below the folder -> sum and size.
    """

    format: int
    files: dict[str, Entry]


M = TypeVar("M", bound=Manifest)


@dataclass(frozen=True)
class FolderType(Generic[M]):
    """What a sealed folder is for.

    Attributes:
        noun: what users call it.
        error: raised where it is not whole.
        manifest: type of its manifest.
        format: number of the layout that is written and read.
        depth: 1 where all files lie in the folder itself, 2 where they may lie in folders of it.
    """

    noun: str
    error: type[TransformerError]
    manifest: type[M]
    format: int
    depth: int = 1


def write_sealed(folder: Path, kind: FolderType[M], facts: dict[str, Any], fill: Callable[[Path], None]) -> None:
    """Writes files, a manifest of their SHA-256 sums and sizes, and the sum of the manifest.

    The folder appears under its name only when everything in it is on disk. Where that fails, nothing stays behind.

    Args:
        folder: must not exist, or be empty.
        kind: what it is for.
        facts: further entries of the manifest.
        fill: writes the files into the folder it is given.

    Raises:
        TransformerError: of the kind: the folder holds something already.
    """
    if folder.exists() and any(folder.iterdir()):
        raise kind.error(f"{folder} is not empty; choose another folder, or remove it first")
    temporary = folder.with_name(f".writing-{folder.name}-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        fill(temporary)
        _write_manifest(temporary, kind, facts)
        sync_tree(temporary)
        temporary.replace(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync(folder.parent)


class VerifiedFolder(Generic[M]):
    """A sealed folder that is read; files that its manifest does not name are not looked at.

    Attributes:
        folder: where it lies.
        manifest: what it holds; matches its sum.
    """

    def __init__(self, folder: Path, kind: FolderType[M]) -> None:
        """Reads and checks the manifest.

        Raises:
            TransformerError: of the kind: no manifest, a changed one, one of a later format, or one that names files
                outside the folder.
        """
        self.folder, self._kind = folder, kind
        if not (folder / MANIFEST).is_file():
            raise kind.error(f"{folder} is not a {kind.noun}: it has no {MANIFEST}; give a folder that is whole")
        raw = self._read(MANIFEST, MAX_MANIFEST_BYTES)
        if self._read(MANIFEST_SUM, 65).decode("ascii", errors="replace") != f"{hashlib.sha256(raw).hexdigest()}\n":
            raise kind.error(
                f"{folder / MANIFEST} does not match {MANIFEST_SUM}; it is damaged, copy the {kind.noun} again"
            )
        try:
            self.manifest = kind.manifest.model_validate_json(raw)
        except ValidationError as error:
            raise kind.error(
                f"{folder / MANIFEST} is no manifest ({_brief(error)}); write the {kind.noun} again"
            ) from error
        if self.manifest.format != kind.format:
            raise kind.error(
                f"{folder} has format={self.manifest.format}, but this version reads {kind.format}; use the version "
                "that wrote it"
            )
        for name in self.manifest.files:
            self._refuse_strange_name(name)

    def read(self, name: str) -> bytes:
        """The content of a file; what was checked is what is returned.

        Raises:
            TransformerError: of the kind: not in the manifest, missing, changed, or no file of the folder's own.
        """
        content = self._read(name, self._entry(name).size)
        self._refuse_difference(name, len(content), hashlib.sha256(content).hexdigest())
        return content

    def checked(self, name: str) -> Path:
        """The path of a file too large to be held twice, whose sum was taken in a stream.

        Raises:
            TransformerError: as `read`.
        """
        self._entry(name)
        path = self._own_file(name)
        with path.open("rb") as file:
            self._refuse_difference(name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())
        return path

    def checking(self, name: str, pool: Executor) -> Future[Path]:
        """As `checked`, beside other work.

        Raises:
            TransformerError: of the kind: not in the manifest, missing, or no file of the folder's own.
        """
        self._entry(name)
        self._own_file(name)
        return pool.submit(self.checked, name)

    def check_all(self, may_lack: Collection[str] = ()) -> None:
        """Checks every file, but for those that are not there and need not be.

        Raises:
            TransformerError: as `read`.
        """
        for name in self.manifest.files:
            if name not in may_lack or (self.folder / name).exists():
                self.checked(name)

    def _entry(self, name: str) -> Entry:
        if name not in self.manifest.files:
            raise self._kind.error(
                f"{self.folder / MANIFEST} does not name {name}; a part of the {self._kind.noun} is missing"
            )
        return self.manifest.files[name]

    def _read(self, name: str, size: int) -> bytes:
        """At most one byte more than `size`, so that a huge file is not read to find that it is too large."""
        with self._own_file(name).open("rb") as file:
            return file.read(min(size, os.fstat(file.fileno()).st_size) + 1)

    def _own_file(self, name: str) -> Path:
        """A plain file that is reached through no link; opening a pipe would wait for ever."""
        path = self.folder / name
        for part in (path, *(path.parents[: len(PurePosixPath(name).parts) - 1])):
            if part.is_symlink():
                raise self._kind.error(f"{part} is a link; a {self._kind.noun} holds its files itself")
        try:
            mode = path.lstat().st_mode
        except OSError as error:
            raise self._kind.error(f"{path}: {error.strerror}; the {self._kind.noun} is incomplete") from error
        if not stat.S_ISREG(mode):
            raise self._kind.error(f"{path} is not a file; do not use this {self._kind.noun}")
        return path

    def _refuse_difference(self, name: str, size: int, sha256: str) -> None:
        entry = self._entry(name)
        if (size, sha256) != (entry.size, entry.sha256):
            raise self._kind.error(
                f"{self.folder / name} does not match its SHA-256; it is damaged, copy the {self._kind.noun} again"
            )

    def _refuse_strange_name(self, name: str) -> None:
        parts = name.split("/")
        plain = all(part and not part.startswith(".") and "\0" not in part for part in parts)
        if not plain or len(parts) > self._kind.depth:
            raise self._kind.error(
                f"{self.folder / MANIFEST} names {name!r}, which is not a plain file name; do not use this "
                f"{self._kind.noun}"
            )


def _write_manifest(folder: Path, kind: FolderType[M], facts: dict[str, Any]) -> None:
    files = {
        path.relative_to(folder).as_posix(): _entry_of(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }
    content = json.dumps({"format": kind.format, **facts, "files": files}, indent=2, sort_keys=True).encode()
    (folder / MANIFEST).write_bytes(content)
    (folder / MANIFEST_SUM).write_text(f"{hashlib.sha256(content).hexdigest()}\n", encoding="ascii")
    for name in files:  # the library of safetensors lets nobody else read what it writes
        (folder / name).chmod((folder / MANIFEST).stat().st_mode)


def _entry_of(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "size": path.stat().st_size}


def _brief(error: ValidationError) -> str:
    """The first thing that is wrong, in one line."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'content'}: {first['msg']}"
