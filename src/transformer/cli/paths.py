"""Paths given on the command line."""

from pathlib import Path

import typer


def folder_path(text: str) -> Path:
    """Returns the path of a folder to be written; an empty one, as of an unset variable, would be the current folder.

    Raises:
        BadParameter: The text is empty.
    """
    if not text:
        raise typer.BadParameter("it is empty; give a folder.")
    return Path(text)
