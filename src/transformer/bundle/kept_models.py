"""Published models that were downloaded and imported once, and are kept on this machine under their names."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from transformer.errors import BundleError
from transformer.storage.atomic import FOLDER_ADVICE, named_errors
from transformer.storage.verified_folder import MANIFEST

FOLDER_VARIABLE: Final = "TRANSFORMER_MODELS"
"""Environment variable that names the folder of the kept models."""


def kept_models_folder() -> Path:
    """Returns the folder of the kept models: `TRANSFORMER_MODELS`, or `transformer/models` in the user's cache."""
    if chosen := os.environ.get(FOLDER_VARIABLE):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "transformer" / "models"


def kept_models() -> dict[str, Path]:
    """Returns the folders of the kept models by their names, e.g. `Helsinki-NLP/opus-mt-en-de`."""
    top = kept_models_folder()
    manifests = [*top.glob(f"[!.]*/{MANIFEST}"), *top.glob(f"[!.]*/[!.]*/{MANIFEST}")]
    folders = sorted(manifest.parent for manifest in manifests)
    return {folder.relative_to(top).as_posix(): folder for folder in folders}


def remove_kept_model(name: str) -> int:
    """Removes a kept model, and what an interrupted download left of it.

    Returns:
        Number of bytes that were freed.

    Raises:
        BundleError: No model of this name is kept.
        OutputError: The folder cannot be removed.
    """
    known = kept_models()
    folder = kept_models_folder() / name
    is_below = not Path(name).is_absolute() and ".." not in Path(name).parts
    unfinished = download_folder(folder) if is_below else None
    parts = [path for path in (known.get(name), unfinished) if path is not None and path.is_dir()]
    if not parts:
        names = f"; only {', '.join(known)}" if known else ""
        raise BundleError(f"{name!r} is not kept in {kept_models_folder()}{names}")
    freed = sum(file.stat().st_size for part in parts for file in part.rglob("*") if file.is_file())
    with named_errors(folder, FOLDER_ADVICE):
        for part in parts:
            shutil.rmtree(part)
    with suppress(OSError):  # models of the same owner are left
        folder.parent.rmdir()
    return freed


def download_folder(folder: Path) -> Path:
    """Returns the folder beside that of a kept model for the files that were downloaded so far."""
    return folder.with_name(f".{folder.name}.download")
