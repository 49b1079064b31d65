"""A folder of files that is complete and unchanged, or refused."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

from transformer.errors import BundleError

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
MANIFEST_SUM: Final = "manifest.sha256"


def write_folder(folder: Path, files: dict[str, bytes], facts: dict[str, Any]) -> None:
    """Writes files, a manifest of their SHA-256 sums and sizes, and the sum of the manifest.

    The folder appears under its name only when everything in it is on disk.

    Args:
        folder: must not exist, or be empty.
        files: name to content.
        facts: further entries of the manifest.

    Raises:
        BundleError: the folder holds something already.
    """
    if folder.exists() and any(folder.iterdir()):
        raise BundleError(f"{folder} is not empty; choose another folder, or remove it first")
    entries = {name: {"sha256": _sha256(content), "size": len(content)} for name, content in files.items()}
    manifest = json.dumps({"format": FORMAT, **facts, "files": entries}, indent=2, sort_keys=True).encode()
    temporary = folder.with_name(f".writing-{folder.name}-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    sums = {MANIFEST: manifest, MANIFEST_SUM: f"{_sha256(manifest)}\n".encode()}
    for name, content in {**files, **sums}.items():
        _write_durably(temporary / name, content)
    temporary.replace(folder)


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Reads and checks what `write_folder` wrote.

    Every content is checked as it is read and returned, so that what was checked is what is used. Files that the
    manifest does not name are not looked at.

    Returns:
        The manifest, and name to content.

    Raises:
        BundleError: something is missing, changed, of a later format, or points outside the folder.
    """
    if not (folder / MANIFEST).is_file():
        raise BundleError(f"{folder} is not a model: it has no {MANIFEST}; give a bundle or a run folder")
    raw = _read(folder, MANIFEST)
    if _read(folder, MANIFEST_SUM).decode("ascii", errors="replace") != f"{_sha256(raw)}\n":
        raise BundleError(f"{folder / MANIFEST} does not match {MANIFEST_SUM}; it is damaged, copy the model again")
    try:
        manifest: dict[str, Any] = json.loads(raw)
        format_number, entries = manifest["format"], dict(manifest["files"])
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{folder / MANIFEST} is no manifest ({error}); export the model again") from error
    if format_number != FORMAT:
        raise BundleError(
            f"{folder} has format={format_number}, but this version reads {FORMAT}; use the version that wrote it"
        )
    return manifest, {name: _checked(folder, name, entry) for name, entry in entries.items()}


def _checked(folder: Path, name: str, entry: dict[str, Any]) -> bytes:
    if name != Path(name).name or name.startswith("."):
        raise BundleError(f"{folder / MANIFEST} names {name!r}, which is not a plain file name; do not use this model")
    content = _read(folder, name)
    if _sha256(content) != entry.get("sha256"):
        raise BundleError(f"{folder / name} does not match its SHA-256; it is damaged, copy the model again")
    return content


def _read(folder: Path, name: str) -> bytes:
    path = folder / name
    if path.is_symlink():
        raise BundleError(f"{path} is a link; a model holds its files itself")
    try:
        return path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}; the model is incomplete") from error


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
