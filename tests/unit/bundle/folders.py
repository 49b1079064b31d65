"""Model folders read and written file by file."""

from pathlib import Path

from transformer.bundle.bundle import BUNDLE
from transformer.storage.verified_folder import VerifiedFolder, write_sealed

FACTS = {"family": "transformer", "precision": "float32", "tied": {}}


def write_folder(folder: Path, files: dict[str, bytes], facts: dict[str, object] = FACTS) -> None:
    """A sealed folder of the given files, whatever is in them."""
    write_sealed(folder, BUNDLE, facts, lambda into: [(into / name).write_bytes(files[name]) for name in files])


def read_folder(folder: Path) -> tuple[object, dict[str, bytes]]:
    """The manifest and the files, checked."""
    sealed = VerifiedFolder(folder, BUNDLE)
    return sealed.manifest, {name: sealed.read(name) for name in sealed.manifest.files}
