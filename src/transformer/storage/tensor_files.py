"""Safetensors files: written with the errors of the operating system, and read even from an untrusted source."""

import errno
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from transformer.errors import DataError

MAX_HEADER_BYTES: Final = 1 << 26


SYSTEM_ERROR: Final = re.compile(r"\(os error (\d+)\)")


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file.

    Raises:
        OSError: The file cannot be written; the library reports this as an error of its own.
    """
    try:
        save_file(dict(tensors), path, None if metadata is None else dict(metadata))
    except SafetensorError as error:
        match = SYSTEM_ERROR.search(str(error))
        raise OSError(int(match[1]) if match else errno.EIO, "not written", str(path)) from error


def tensor_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Returns the bytes that tensors take in a file, without its header."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Reads the tensors of a safetensors file. They are copies, which do not change when the file does.

    The library checks offsets, types and sizes. It would accept duplicate names and use the last tensor, so those are
    checked here.

    Raises:
        DataError: The file has another format, its header is too large, or it names a tensor twice.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:
            raise DataError(f"its header claims {length:,} bytes")
        header = file.read(length)
    try:
        json.loads(header, object_pairs_hook=_check_unique)
    except (ValueError, RecursionError) as error:
        raise DataError("its header is not one of tensors") from error
    try:
        return {name: tensor.clone() for name, tensor in load_file(path).items()}  # those of the library are mapped
    except SafetensorError as error:
        raise DataError("it is cut short, or its header does not describe it") from error


def _check_unique(pairs: list[tuple[str, object]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a name stands in it twice")
