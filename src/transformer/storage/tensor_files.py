"""Tensors from a file that someone else may have made."""

import json
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

MAX_HEADER_BYTES: Final = 1 << 26


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, read without a second copy.

    The library checks offsets, types and sizes; of two tensors under one name it would take the last.

    Raises:
        SafetensorError: the file is something else, its header is huge, or it names a tensor twice.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:
            raise SafetensorError(f"its header claims {length:,} bytes")
        header = file.read(length)
    try:
        json.loads(header, object_pairs_hook=_refuse_twice)
    except (ValueError, RecursionError) as error:
        raise SafetensorError(f"its header is not one of tensors ({error})") from error
    return load_file(path)


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a name stands in it twice")
