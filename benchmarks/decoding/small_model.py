"""Fetches the small model of the benchmarks: version 1.1 of the bundled `en-de`, in int8.

It has 5.4 million parameters (d_model 192, 6 encoder and 2 decoder layers). Later versions are larger, so this one is
read from the history of the repository. Its manifest, and with it every file of the model, is pinned by SHA-256.

    python benchmarks/decoding/small_model.py build/small-model
"""

import argparse
import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

from transformer.bundle.bundle import BUNDLE
from transformer.errors import BundleError, OutputError
from transformer.storage.atomic import atomic_folder
from transformer.storage.verified_folder import MANIFEST_SUM, VerifiedFolder

ROOT: Final = Path(__file__).parents[2]
COMMIT: Final = "dbcee9a5a75568b8bc931821ab2be5f712a178eb"
"""The last commit that changed a file of version 1.1."""
BUNDLE_PATH: Final = "models/en-de/transformer_model_en_de/bundle"
MANIFEST_SHA256: Final = "59db5c6cef7311e7e198b8af4859fd864a4d898a4c1a610ac149ae3ae6a27a28"


def fetch_small_model(folder: Path, repository: Path = ROOT) -> Path:
    """Writes the model to a folder, unless it is there, and verifies it.

    Args:
        folder: Folder of the model.
        repository: Checkout of this project, with its history.

    Returns:
        The folder.

    Raises:
        BundleError: The history lacks the commit, or the folder holds another model or a damaged one.
        OutputError: The folder cannot be written.
    """
    if not folder.exists():
        command = ["git", "-C", str(repository), "archive", "--format=zip", f"{COMMIT}:{BUNDLE_PATH}"]
        try:
            archive = subprocess.run(command, capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise BundleError(
                f"{repository} has no commit {COMMIT[:8]}, which holds the model; clone the repository with "
                "its history, or run git fetch --unshallow"
            ) from error
        with atomic_folder(folder) as temporary, zipfile.ZipFile(io.BytesIO(archive)) as files:
            files.extractall(temporary)
    verified = VerifiedFolder(folder, BUNDLE)
    if (folder / MANIFEST_SUM).read_text(encoding="ascii").strip() != MANIFEST_SHA256:
        raise BundleError(f"{folder} holds another model; remove it, and run the command again")
    verified.verify_all()
    return folder


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the model; written if it is missing")
    try:
        print(fetch_small_model(parser.parse_args().folder))
    except (BundleError, OutputError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
