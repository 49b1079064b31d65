"""Model folders read and written file by file."""

from pathlib import Path

from transformer.bundle.bundle import BUNDLE
from transformer.storage.verified_folder import VerifiedFolder, write_verified_folder

FACTS = {"family": "transformer", "precision": "float32", "tied": {}}


def write_folder(folder: Path, files: dict[str, bytes], facts: dict[str, object] = FACTS) -> None:
    """Writes a verified folder with the given files, whatever their content."""
    write_verified_folder(
        folder, BUNDLE, facts, lambda into: [(into / name).write_bytes(files[name]) for name in files]
    )


def read_folder(folder: Path) -> tuple[object, dict[str, bytes]]:
    """Returns the manifest and the verified files."""
    verified = VerifiedFolder(folder, BUNDLE)
    return verified.manifest, {name: verified.read(name) for name in verified.manifest.files}
