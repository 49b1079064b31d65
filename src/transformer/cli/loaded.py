"""The model that a command asks for."""

from pathlib import Path
from types import UnionType
from typing import Any

from transformer.errors import ConfigError


def loaded(model: Path, wanted: type | UnionType, name: str, **options: Any) -> Any:
    """A model ready to work, in a process that keeps its memory.

    Args:
        model: its folder.
        wanted: what does its job, or several.
        name: of that, for people: "language model".
        options: of `load`.

    Raises:
        ConfigError: it does another job.
    """
    from transformer.pipelines.auto import load  # loads torch
    from transformer.runtime.allocator import retain_heap

    retain_heap()
    found: Any = load(model, **options)
    if not isinstance(found, wanted):
        raise ConfigError(f"{model} is no {name}; see `transformer info {model}` for what it is")
    return found
