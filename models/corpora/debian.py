"""Packages of Debian: download, unpacking, and the licence that they state."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ALLOWED: Final = re.compile(r"(?:L?GPL|GFDL|MPL|CC-BY(?:-SA)?|Apache|BSD|Expat|MIT|ISC)\b", re.IGNORECASE)
SECOND_ONLY: Final = re.compile(r"L?GPL-2(?:\.0)?(?:-only|-with-exception)?$", re.IGNORECASE)
"""Version 2 of the GPL and no later one, which cannot be combined with version 3."""
FILES_STAR: Final = re.compile(r"^Files:\s*\*\s*\n.*?^License:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE | re.DOTALL)


def unpack(names: Sequence[str], folder: Path) -> dict[str, Path]:
    """Downloads packages where they are missing, and unpacks each into a folder of its name.

    Args:
        names: Names of packages.
        folder: Folder of the packages.

    Returns:
        The unpacked folder of each package that could be had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not (folder / name).is_dir()]
    for start in range(0, len(missing), 50):
        subprocess.run(["apt-get", "download", "-q", *missing[start : start + 50]], cwd=folder, check=False)
    for archive in sorted(folder.glob("*.deb")):
        target = folder / archive.name.partition("_")[0]
        subprocess.run(["dpkg-deb", "-x", archive, target], check=True)
        archive.unlink()
    return {name: folder / name for name in names if (folder / name).is_dir()}


def stated_license(package: Path) -> str:
    """Returns the licence of a package's files as its machine-readable copyright file states it; "" without one.

    A package whose documents are a link to those of another one has that one's licence, if it is unpacked beside it.
    """
    folders = [
        package.parent / folder.readlink().name / "usr/share/doc" / folder.readlink().name
        if folder.is_symlink()
        else folder
        for folder in sorted(package.glob("usr/share/doc/*"))
    ]
    for path in (folder / "copyright" for folder in folders):
        if path.is_file() and (match := FILES_STAR.search(path.read_text(encoding="utf-8", errors="replace"))):
            return match[1]
    return ""


def is_allowed(license_name: str) -> bool:
    """Tells whether a model may be trained on texts under a licence and be passed on with it."""
    return bool(ALLOWED.match(license_name)) and not SECOND_ONLY.match(license_name)
