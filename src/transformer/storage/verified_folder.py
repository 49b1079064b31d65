"""Folders whose completeness and integrity are verified by a manifest of SHA-256 sums."""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Generic, TypeVar

from pydantic import Field, ValidationError

from transformer.config import Config, describe_problems
from transformer.errors import TransformerError
from transformer.storage.atomic import atomic_folder

MANIFEST: Final = "manifest.json"
MANIFEST_SUM: Final = "manifest.sha256"
SHA256: Final = "^[0-9a-f]{64}$"
MAX_MANIFEST_BYTES: Final = 1 << 24


class Entry(Config):
    """Checksum and size in bytes of one file of a verified folder."""

    sha256: str = Field(pattern=SHA256)
    size: int = Field(ge=0, strict=True)


class Manifest(Config):
    """The manifest of a verified folder.

    Attributes:
        format: Version of the folder layout.
        files: Checksum and size of each file, by its path below the folder.
    """

    format: int
    files: dict[str, Entry]


M = TypeVar("M", bound=Manifest)


@dataclass(frozen=True)
class FolderType(Generic[M]):
    """A type of verified folder, for example a model or a checkpoint.

    Attributes:
        noun: Name of the type in messages.
        error: Exception raised if a folder is incomplete or damaged.
        manifest: Class of the manifest.
        format: Version of the folder layout that is written and read.
        depth: Maximum depth of the files: 1 for files in the folder itself, 2 if they may be in subfolders.
    """

    noun: str
    error: type[TransformerError]
    manifest: type[M]
    format: int
    depth: int = 1


def write_verified_folder(
    folder: Path, folder_type: FolderType[M], facts: Mapping[str, object], fill: Callable[[Path], None]
) -> None:
    """Writes files, a manifest of their SHA-256 sums and sizes, and the checksum of the manifest.

    The folder is complete or does not exist, see `atomic_folder`.

    Args:
        folder: Folder to write, which must not exist or must be empty.
        folder_type: Type of the folder.
        facts: Further entries of the manifest.
        fill: Function that writes the files into the folder passed to it.

    Raises:
        TransformerError: The folder is not empty; an instance of `folder_type.error`.
        OutputError: The folder cannot be written.
    """
    if folder.exists() and any(folder.iterdir()):
        raise folder_type.error(f"{folder} is not empty; choose another folder, or remove it first")
    with atomic_folder(folder) as temporary:
        fill(temporary)
        _write_manifest(temporary, folder_type, facts)


class VerifiedFolder(Generic[M]):
    """A folder whose files are verified when they are read; files that the manifest does not name are ignored.

    Attributes:
        folder: Path of the folder.
        manifest: The manifest, which matches its checksum.
    """

    def __init__(self, folder: Path, folder_type: FolderType[M]) -> None:
        """Reads and checks the manifest.

        Raises:
            TransformerError: The manifest is missing, changed, of another format, or names files outside the folder;
                an instance of `folder_type.error`, as in all methods.
        """
        self.folder, self._type = folder, folder_type
        if not (folder / MANIFEST).is_file():
            raise folder_type.error(
                f"{folder} is not a {folder_type.noun}: it has no {MANIFEST}; check the path, or copy it again"
            )
        raw = self._read(MANIFEST, MAX_MANIFEST_BYTES)
        if self._read(MANIFEST_SUM, 65).decode("ascii", errors="replace") != f"{hashlib.sha256(raw).hexdigest()}\n":
            raise folder_type.error(
                f"{folder / MANIFEST} does not match {MANIFEST_SUM}; it is damaged, copy the {folder_type.noun} again"
            )
        try:
            self.manifest = folder_type.manifest.model_validate_json(raw)
        except ValidationError as error:
            raise folder_type.error(
                f"{folder / MANIFEST} is not a valid manifest ({describe_problems(error)}); write the "
                f"{folder_type.noun} again"
            ) from error
        if self.manifest.format != folder_type.format:
            raise folder_type.error(
                f"{folder} has format={self.manifest.format}, but this version reads {folder_type.format}; use the "
                "version that wrote it"
            )
        for name in self.manifest.files:
            self._check_name(name)

    def read(self, name: str) -> bytes:
        """Returns the verified content of a file.

        Raises:
            TransformerError: The file is not in the manifest, missing, changed, or not a regular file of the folder.
        """
        content = self._read(name, self._entry(name).size)
        self._check_digest(name, len(content), hashlib.sha256(content).hexdigest())
        return content

    def verified_path(self, name: str) -> Path:
        """Verifies a file by streaming and returns its path, for files that are too large to be held in memory twice.

        Raises:
            TransformerError: The same cases as in `read`.
        """
        self._entry(name)
        path = self._regular_file(name)
        with path.open("rb") as file:
            self._check_digest(name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())
        return path

    def verify_in_background(self, name: str, pool: Executor) -> Future[Path]:
        """Runs `verified_path` in an executor.

        Raises:
            TransformerError: The file is not in the manifest, missing, or not a regular file of the folder.
        """
        self._entry(name)
        self._regular_file(name)
        return pool.submit(self.verified_path, name)

    def verify_all(self, may_lack: Collection[str] = ()) -> None:
        """Verifies every file; files named in `may_lack` may be missing.

        Raises:
            TransformerError: The same cases as in `read`.
        """
        for name in self.manifest.files:
            if name not in may_lack or (self.folder / name).exists():
                self.verified_path(name)

    def _entry(self, name: str) -> Entry:
        if name not in self.manifest.files:
            raise self._type.error(
                f"{self.folder / MANIFEST} does not name {name}; a part of the {self._type.noun} is missing"
            )
        return self.manifest.files[name]

    def _read(self, name: str, size: int) -> bytes:
        """Reads at most one byte more than `size`, so that a file that is too large is not read completely."""
        with self._regular_file(name).open("rb") as file:
            return file.read(min(size, os.fstat(file.fileno()).st_size) + 1)

    def _regular_file(self, name: str) -> Path:
        """Returns the path of a regular file that is reached without symbolic links.

        Pipes are rejected because opening one would block forever.
        """
        path = self.folder / name
        for part in (path, *(path.parents[: len(PurePosixPath(name).parts) - 1])):
            if part.is_symlink():
                raise self._type.error(f"{part} is a link; a {self._type.noun} holds its files itself")
        try:
            mode = path.lstat().st_mode
        except OSError as error:
            raise self._type.error(f"{path}: {error.strerror}; the {self._type.noun} is incomplete") from error
        if not stat.S_ISREG(mode):
            raise self._type.error(f"{path} is not a file; do not use this {self._type.noun}")
        return path

    def _check_digest(self, name: str, size: int, sha256: str) -> None:
        entry = self._entry(name)
        if (size, sha256) != (entry.size, entry.sha256):
            raise self._type.error(
                f"{self.folder / name} does not match its SHA-256; it is damaged, copy the {self._type.noun} again"
            )

    def _check_name(self, name: str) -> None:
        parts = name.split("/")
        is_plain = all(part and not part.startswith(".") and "\0" not in part for part in parts)
        if not is_plain or len(parts) > self._type.depth:
            raise self._type.error(
                f"{self.folder / MANIFEST} names {name!r}, which is not a plain file name; do not use this "
                f"{self._type.noun}"
            )


def _write_manifest(folder: Path, folder_type: FolderType[M], facts: Mapping[str, object]) -> None:
    files = {
        path.relative_to(folder).as_posix(): _describe(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }
    content = json.dumps({"format": folder_type.format, **facts, "files": files}, indent=2, sort_keys=True).encode()
    (folder / MANIFEST).write_bytes(content)
    (folder / MANIFEST_SUM).write_text(f"{hashlib.sha256(content).hexdigest()}\n", encoding="ascii")
    for name in files:  # safetensors writes files that only their owner can read
        (folder / name).chmod((folder / MANIFEST).stat().st_mode)


def _describe(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "size": path.stat().st_size}
