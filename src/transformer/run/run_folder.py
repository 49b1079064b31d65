"""Locking and cleanup of run folders: one process per folder, and nothing left behind by a failed start."""

import fcntl
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from transformer.data.config import COMPRESSIONS, DataConfig
from transformer.data.task_configs import AnyTaskConfig
from transformer.errors import CheckpointError, TransformerError
from transformer.storage.verified_folder import MANIFEST

LOCK = ".lock"


def default_folder(recipe: Path | None, data: AnyTaskConfig) -> Path:
    """Returns the folder of a run without a given one: `runs/` and the name of the recipe, or else of the texts.

    Args:
        recipe: Path or name of the recipe file, if there is one.
        data: The `data` section. corpus.en and corpus.de are called corpus; en.txt and de.txt, en-de.
    """
    if recipe is not None:
        return Path("runs") / recipe.stem
    files = data.text_files[0] if isinstance(data, DataConfig) and data.text_files else (data.name,)
    return Path("runs") / ("-".join(dict.fromkeys(map(_stem, files))) or "run")


def _stem(path: str) -> str:
    name = Path(path)
    return Path(name.stem if name.suffix in COMPRESSIONS else name.name).stem


def unused_folder(run: Path) -> Path:
    """Returns the folder itself if it does not exist, otherwise the first of RUN-2, RUN-3, ... that does not."""
    number, folder = 1, run
    while folder.exists():
        number += 1
        folder = run.with_name(f"{run.name}-{number}")
    return folder


@contextmanager
def lock_run_folder(run: Path) -> Generator[None]:
    """Creates the run folder and locks it for this process.

    On exit, a folder that contains only the lock file is emptied, and folders that were created here and are empty are
    removed.

    Raises:
        CheckpointError: Another process holds the lock.
    """
    created = [folder for folder in (run, *run.parents) if not folder.exists()]
    run.mkdir(parents=True, exist_ok=True)
    with _lock(run):
        try:
            yield
        finally:
            if [path.name for path in run.iterdir()] == [LOCK]:
                (run / LOCK).unlink()
                for folder in created:
                    _remove_empty(folder)


@contextmanager
def remove_on_failure(run: Path, names: Sequence[str], finished: str) -> Generator[None]:
    """Removes new files and folders when the block raises a `TransformerError` or `KeyboardInterrupt`.

    Args:
        run: Run folder.
        names: Names of the files and folders to remove, unless they existed before the block.
        finished: Glob pattern of completed subfolders. A folder that contains a verified one is kept, because it may
            have taken hours and the next start can reuse it.
    """
    before = {name for name in names if (run / name).exists()}
    try:
        yield
    except (TransformerError, KeyboardInterrupt):
        new_paths = (run / name for name in names if name not in before)
        for path in (path for path in new_paths if not any(path.glob(f"{finished}/{MANIFEST}"))):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        raise


def _lock(run: Path) -> TextIO:
    """Opens and locks the lock file.

    Retries if the previous holder has removed the file meanwhile, because a lock on a removed file protects nothing.

    Raises:
        CheckpointError: Another process holds the lock.
    """
    while True:
        file = (run / LOCK).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (run / LOCK).exists() and os.path.samestat(os.fstat(file.fileno()), (run / LOCK).stat()):
                return file
        except OSError as error:
            file.close()
            raise CheckpointError(f"{run} is in use by another training process; choose another folder") from error
        file.close()


def _remove_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
