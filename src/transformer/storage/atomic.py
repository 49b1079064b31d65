"""Atomic writes: after a power failure, either the old or the new content is on disk, never a part of either."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Waits until a file, or the directory entries of a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Waits until a folder and everything below it are on disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def replace_text(path: Path, text: str) -> None:
    """Replaces a text file atomically."""
    temporary = path.with_name(f".writing-{path.name}")
    temporary.write_text(text, encoding="utf-8")
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)
