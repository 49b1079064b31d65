"""Paths given on the command line."""

from pathlib import Path

import typer


def folder_path(text: str) -> Path:
    """Returns the path of an output folder; refuses an empty path, e.g. of an unset variable.

    Raises:
        BadParameter: The text is empty.
    """
    if not text:
        raise typer.BadParameter("it is empty; give a folder.")
    return Path(text)
