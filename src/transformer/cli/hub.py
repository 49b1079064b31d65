"""Use of published models by their names: they are downloaded once, imported, and kept."""

import fcntl
import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from transformer.cli.progress import progress_bar, spinner
from transformer.cli.verbosity import say
from transformer.errors import BundleError, counted
from transformer.storage.atomic import FOLDER_ADVICE, named_errors
from transformer.storage.disk_space import check_space, describe_bytes

if TYPE_CHECKING:
    from transformer.bundle.hub import PublishedModel

LARGE: Final = 10**9
"""Bytes from which a download is asked for on a terminal."""


def obtain_model(model: Path) -> Path:
    """Returns the path of a model as it is; if it names a published model that is not here, it is downloaded and kept.

    Raises:
        BundleError: The model cannot be downloaded, or is not one that this program reads.
        OutputError: It cannot be written.
    """
    if model.exists():
        return model
    from transformer.bundle.hub_cache import find_local_model, may_be_published  # loads torch

    if find_local_model(model) is None and may_be_published(model):
        keep_model(model.as_posix())
    return model


def keep_model(name: str) -> Path:
    """Downloads and imports a published model, and returns the folder in which it is kept.

    Args:
        name: Name of the model; a revision may follow it behind `@`.

    Raises:
        BundleError: The model cannot be downloaded, or is not one that this program reads.
        OutputError: It cannot be written.
    """
    from transformer.bundle.hub import find_published  # loads torch
    from transformer.bundle.kept_models import download_folder, kept_models, kept_models_folder

    repository, _, revision = name.partition("@")
    with spinner(f"looking for {repository}"):
        model = find_published(repository, revision or None)
    folder = kept_models_folder() / name
    _introduce(model, folder)
    with _own_folder(download_folder(folder)) as files:
        if name not in kept_models():  # or another process has kept it meanwhile
            _download(model, files)
            _import(model, files, folder)
        shutil.rmtree(files, ignore_errors=True)
    return folder


def _introduce(model: "PublishedModel", folder: Path) -> None:
    """Says what a model is before it is downloaded, and asks for a large one on a terminal.

    Raises:
        BundleError: The user does not want it.
    """
    facts = {
        "task": model.task, "languages": ", ".join(model.languages), "license": model.license or "not stated",
        "revision": model.revision[:12], "size": f"{describe_bytes(model.size)} in {counted(len(model.files), 'file')}",
        "kept in": str(folder),
    }  # fmt: skip
    say(f"{model.name} is not on this machine; it is downloaded once from {model.host}:")
    for key, value in facts.items():
        if value:
            say(f"  {key:<10} {value}")
    if model.is_pickled:
        say("  it has pickled weights alone, which are converted in a process of their own")
    is_asked = model.size > LARGE and sys.stdin.isatty() and sys.stderr.isatty()
    if is_asked and not typer.confirm(f"download {describe_bytes(model.size)}?", err=True):
        raise BundleError(f"{model.name} was not downloaded; give another model")


@contextmanager
def _own_folder(folder: Path) -> Generator[Path]:
    """Makes a folder that other processes wait for."""
    with named_errors(folder, FOLDER_ADVICE):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    finally:
        os.close(handle)


def _download(model: "PublishedModel", files: Path) -> None:
    """Downloads a model, first the description of its architecture.

    Raises:
        BundleError: The model is not one that this program reads.
    """
    from transformer.bundle.hub import download
    from transformer.bundle.huggingface import CONFIG, check_architecture

    present = sum(file.stat().st_size for file in files.rglob("*") if file.is_file())
    check_space(files, model.size - present, "the download")
    download(replace(model, files=[file for file in model.files if file.name == CONFIG]), files)
    with _named(model.name, files):
        check_architecture(files)
    with progress_bar("MB", round(model.size / 1e6)) as done:
        arrived = 0

        def advance(count: int) -> None:
            nonlocal arrived
            before, arrived = arrived, arrived + count
            done(arrived // 1_000_000 - before // 1_000_000)

        download(model, files, advance)


@contextmanager
def _named(name: str, files: Path) -> Generator[None]:
    """Names the model instead of the folder of its files in an error.

    Raises:
        BundleError: There was an error.
    """
    try:
        yield
    except BundleError as error:
        message = str(error).replace(str(files), name)
        raise BundleError(message if name in message else f"{name}: {message}") from error


def _import(model: "PublishedModel", files: Path, folder: Path) -> None:
    from transformer.bundle import save_bundle
    from transformer.bundle.huggingface import read_published  # loads torch

    with spinner(f"importing {model.name}"), _named(model.name, files):
        bundle = read_published(files, unpickle_in=files)
        bundle.provenance["imported"] |= {
            "folder": model.name, "revision": model.revision, "host": model.host, "license": model.license,
        }  # fmt: skip
        save_bundle(folder, bundle)
