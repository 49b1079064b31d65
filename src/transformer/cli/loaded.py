"""Loading of the model of a command."""

from pathlib import Path
from types import UnionType
from typing import Any

from transformer.cli.kernel_note import note_missing_kernels
from transformer.errors import ConfigError


def loaded(model: Path, wanted: type | UnionType, name: str, **options: Any) -> Any:
    """Loads a pipeline, and keeps freed memory in the process for reuse.

    Args:
        model: Folder of the model.
        wanted: Class of the pipeline, or several.
        name: Kind of model for messages, e.g. "language model".
        options: Options of `load`.

    Raises:
        ConfigError: The model is of another kind.
    """
    from transformer.pipelines.auto import load  # loads torch
    from transformer.runtime.allocator import retain_heap

    retain_heap()
    note_missing_kernels()
    pipeline: Any = load(model, **options)
    if not isinstance(pipeline, wanted):
        raise ConfigError(f"{model} is not a {name}; see `transformer info {model}` for its task")
    return pipeline
