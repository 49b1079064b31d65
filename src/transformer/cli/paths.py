"""Paths given on the command line."""

from pathlib import Path
from typing import Any

import typer


def folder_path(text: str) -> Path:
    """Returns the path of an output folder; refuses an empty path, e.g. of an unset variable.

    Raises:
        BadParameter: The text is empty.
    """
    if not text:
        raise typer.BadParameter("it is empty; give a folder.")
    return Path(text)


def folder_option(help: str, *flags: str) -> Any:
    """Returns the `typer.Option` of an output folder.

    Args:
        help: Description for `--help`.
        flags: Option strings; default: the name of the parameter.
    """
    return typer.Option(*flags, help=help, parser=folder_path, metavar="PATH")
