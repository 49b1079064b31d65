"""Reading of safetensors files that may come from an untrusted source."""

import json
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

MAX_HEADER_BYTES: Final = 1 << 26


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Reads the tensors of a safetensors file without a second copy in memory.

    The library checks offsets, types and sizes. It would accept duplicate names and use the last tensor, so those are
    checked here.

    Raises:
        SafetensorError: The file has another format, its header is too large, or it names a tensor twice.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:
            raise SafetensorError(f"its header claims {length:,} bytes")
        header = file.read(length)
    try:
        json.loads(header, object_pairs_hook=_check_unique)
    except (ValueError, RecursionError) as error:
        raise SafetensorError(f"its header is not one of tensors ({error})") from error
    return load_file(path)


def _check_unique(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a name stands in it twice")
