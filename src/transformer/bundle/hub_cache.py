"""Lookup of models on this machine: installed packages, kept models, and the Hugging Face cache."""

import os
import re
from pathlib import Path
from typing import Final

from transformer.bundle.installed import PROJECT_MODELS, installed_models, model_installation_hint
from transformer.bundle.kept_models import kept_models
from transformer.errors import BundleError
from transformer.models import family, family_names

RUNS: Final = "runs"
"""Folder of the runs that `transformer train` names itself, so that no missing one passes for a published model."""
REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(@[\w.-]+)?", re.ASCII)
"""Name of a published model: `gpt2`, `Helsinki-NLP/opus-mt-en-de`, or with a revision `google/vit@main`."""


def find_model(path: Path) -> Path:
    """Resolves the name of an installed, kept or cached model to its folder; returns existing paths unchanged.

    Raises:
        BundleError: The path does not exist, nor a model of this name.
    """
    folder = find_local_model(path)
    if folder is not None:
        return folder
    name = path.as_posix()
    if name in PROJECT_MODELS:
        raise BundleError(f"model={name} is not installed; {model_installation_hint(name)}")
    installed = installed_models()
    names = f", or an installed model ({', '.join(installed)})" if installed else ""
    message = f"{path} does not exist; give a bundle or a run folder{names}"
    if not may_be_published(path):
        raise BundleError(message)
    raise BundleError(f"{message}, or get the published model: transformer import {name}")


def find_local_model(path: Path) -> Path | None:
    """Same as `find_model`, but returns None for a model that this machine does not have."""
    name = path.as_posix()
    if path.exists() or path.is_symlink():
        return path
    if (installed := installed_models().get(name)) is not None:
        return installed.folder
    if not REPOSITORY.fullmatch(name):
        return None
    return kept_models().get(name) or _snapshot(name)


def may_be_published(path: Path) -> bool:
    """Whether a path that does not exist looks like the name of a published model, e.g. ORG/NAME or gpt2."""
    if not REPOSITORY.fullmatch(path.as_posix()) or path.parts[0] == RUNS:
        return False
    types = [published for name in family_names() for published in family(name).published_types()]
    return not path.parent.exists() if len(path.parts) == 2 else path.name.startswith(tuple(types))


def cache_folder() -> Path:
    """Returns the cache folder of the Hugging Face libraries, which they read from environment variables."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return _expand_path(os.environ[variable])
    if os.environ.get("HF_HOME"):
        return _expand_path(os.environ["HF_HOME"]) / "hub"
    return _expand_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def repository_name(folder: Path) -> str:
    """Returns the name of the published model whose folder in a cache this is, or the name of another folder."""
    parts = folder.resolve().parts
    if len(parts) > 2 and parts[-2] == "snapshots" and parts[-3].startswith("models--"):
        return parts[-3].removeprefix("models--").replace("--", "/")
    return folder.resolve().name


def _expand_path(path: str) -> Path:
    return Path(os.path.expandvars(path)).expanduser()


def _snapshot(name: str) -> Path | None:
    """Returns the snapshot of the main (or only) revision of a cached model; None without one."""
    folder = cache_folder() / f"models--{name.replace('/', '--')}"
    try:
        main = folder / "snapshots" / (folder / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        main = None
    if main is not None and main.parent == folder / "snapshots" and main.is_dir():
        return main
    revisions = [path for path in (folder / "snapshots").glob("*") if path.is_dir()]
    return revisions[0] if len(revisions) == 1 else None
