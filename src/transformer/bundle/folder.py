"""A folder of files that is complete and unchanged, or refused."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from transformer.errors import BundleError
from transformer.settings import Settings

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
MANIFEST_SUM: Final = "manifest.sha256"


class Entry(Settings):
    """One file of a model folder."""

    sha256: str
    size: int


class Manifest(Settings):
    """What a model folder holds.

    Attributes:
        format: number of the layout.
        family: of the model.
        precision: of the stored weights.
        tied: parameter that stands in a second place -> name under which it is stored.
        files: name -> sum and size.
    """

    format: int
    family: str
    precision: str
    tied: dict[str, str]
    files: dict[str, Entry]


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


def read_folder(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
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
        manifest = Manifest.model_validate_json(raw)
    except ValidationError as error:
        raise BundleError(f"{folder / MANIFEST} is no manifest ({_brief(error)}); export the model again") from error
    if manifest.format != FORMAT:
        raise BundleError(
            f"{folder} has format={manifest.format}, but this version reads {FORMAT}; use the version that wrote it"
        )
    return manifest, {name: _checked(folder, name, entry) for name, entry in manifest.files.items()}


def _checked(folder: Path, name: str, entry: "Entry") -> bytes:
    if name != Path(name).name or name.startswith("."):
        raise BundleError(f"{folder / MANIFEST} names {name!r}, which is not a plain file name; do not use this model")
    content = _read(folder, name)
    if len(content) != entry.size or _sha256(content) != entry.sha256:
        raise BundleError(f"{folder / name} does not match its SHA-256; it is damaged, copy the model again")
    return content


def _brief(error: ValidationError) -> str:
    """The first thing that is wrong, in one line."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'content'}: {first['msg']}"


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
