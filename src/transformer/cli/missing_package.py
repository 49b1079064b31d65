"""Names the extra that installs a missing package, so that packages of one extra are not missed one after another."""

import re
from importlib.metadata import PackageNotFoundError, metadata
from typing import Final

from transformer.cli.usage import PROGRAM

MODULES: Final = {"PIL": "pillow"}
"""Distributions whose modules have another name."""
EXTRA: Final = re.compile(r"""([\w.-]+).*;.*\bextra *== *["']([\w-]+)["']""")
"""A requirement of an extra: its distribution and the name of the extra."""
FOR_DEVELOPERS: Final = ("dev", "docs")


def installation_hint(module: str) -> str:
    """Returns the sentence that says what to install for a module.

    Args:
        module: Name of a module at the top level, which could not be imported.
    """
    extra = _extra_of(MODULES.get(module, module))
    needed = f"'{PROGRAM}[{extra}]'" if extra else module
    return f"the package {module} is missing, which this command needs; pip install {needed}"


def _extra_of(distribution: str) -> str | None:
    """Returns the first extra of this package that installs a distribution; None if there is none."""
    try:
        requirements = metadata(PROGRAM).get_all("Requires-Dist", [])
    except PackageNotFoundError:
        return None
    for match in filter(None, map(EXTRA.match, requirements)):
        if _normalized(match[1]) == _normalized(distribution) and match[2] not in FOR_DEVELOPERS:
            return match[2]
    return None


def _normalized(name: str) -> str:
    """Returns the name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
