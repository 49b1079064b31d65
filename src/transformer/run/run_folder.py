"""A run folder is held by one process, and one that was refused leaves nothing behind."""

import fcntl
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from transformer.errors import CheckpointError, TransformerError
from transformer.storage.verified_folder import MANIFEST

LOCK = ".lock"


def fresh_folder(run: Path) -> Path:
    """The folder itself where there is none, or the first of RUN-2, RUN-3, ... beside it that is free."""
    number, folder = 1, run
    while folder.exists():
        number += 1
        folder = run.with_name(f"{run.name}-{number}")
    return folder


@contextmanager
def hold_run(run: Path) -> Generator[None]:
    """Makes the run folder and holds it for this process.

    Folders that were made for it and in which nothing but the lock remains are removed at the end.

    Raises:
        CheckpointError: another process holds it.
    """
    made = [folder for folder in (run, *run.parents) if not folder.exists()]
    run.mkdir(parents=True, exist_ok=True)
    with _lock(run):
        try:
            yield
        finally:
            if [path.name for path in run.iterdir()] == [LOCK]:
                (run / LOCK).unlink()
                for folder in made:
                    _remove_empty(folder)


@contextmanager
def nothing_left(run: Path, names: Sequence[str], finished: str) -> Generator[None]:
    """Removes those of the named files and folders that appeared inside a block that is refused or left.

    A folder in which a path that matches `finished` was sealed stays: it may have taken hours, and the next start goes
    on with it.
    """
    before = {name for name in names if (run / name).exists()}
    try:
        yield
    except (TransformerError, KeyboardInterrupt):
        appeared = (run / name for name in names if name not in before)
        for path in (each for each in appeared if not any(each.glob(f"{finished}/{MANIFEST}"))):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        raise


def _lock(run: Path) -> TextIO:
    """The open lock file; a lock on a file that its last holder has removed meanwhile would hold nothing."""
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
