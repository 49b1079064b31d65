"""Calibration of a model folder: a file beside the model, measured after it, which changes no other file."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from transformer.errors import BundleError
from transformer.storage.atomic import replace_text
from transformer.storage.verified_folder import MANIFEST_SUM

CALIBRATION: Final = "calibration.json"


def write_calibration(folder: Path, entries: Mapping[str, Any]) -> None:
    """Writes the calibration of a model folder, bound to its model and with a checksum.

    The manifest does not name the file, so that the model's fingerprint and the checkpoint that it belongs to stay
    valid.

    Args:
        folder: Folder of the model.
        entries: Calibration as JSON values.

    Raises:
        OutputError: The folder cannot be written.
    """
    content = {"model": _fingerprint(folder), "entries": entries}
    replace_text(folder / CALIBRATION, json.dumps(content | {"sha256": _sum(content)}, indent=2, sort_keys=True))


def read_calibration(folder: Path) -> dict[str, Any]:
    """Returns the calibration of a model folder; empty if it has none.

    Raises:
        BundleError: The file is damaged, or belongs to another model.
    """
    path = folder / CALIBRATION
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        recorded, entries = content.pop("sha256"), dict(content["entries"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BundleError(f"{path} is not a calibration; remove it, or run transformer calibrate") from error
    if recorded != _sum(content):
        raise BundleError(f"{path} does not match its checksum; remove it, or run transformer calibrate")
    if content.get("model") != _fingerprint(folder):
        raise BundleError(f"{path} belongs to another model; remove it, or run transformer calibrate")
    return entries


def _fingerprint(folder: Path) -> str:
    return (folder / MANIFEST_SUM).read_text(encoding="ascii").strip()


def _sum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
