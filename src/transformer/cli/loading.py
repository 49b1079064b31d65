"""Loading of the model of a command."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from transformer.cli.kernel_note import note_missing_kernels
from transformer.errors import ConfigError

if TYPE_CHECKING:
    from transformer.decoding import Search

Pipeline = TypeVar("Pipeline")


def load_pipeline(
    model: Path, name: str, *wanted: type[Pipeline], precision: str = "auto", search: "Search | None" = None
) -> Pipeline:
    """Loads a pipeline, and keeps freed memory in the process for reuse.

    Args:
        model: Folder of the model.
        name: Kind of model for messages, e.g. "language model".
        wanted: Classes of the pipeline.
        precision: Precision of the weights, as in `load`.
        search: Options of the search; the default is greedy.

    Raises:
        ConfigError: The model is of another kind.
    """
    from transformer.decoding import GREEDY  # loads torch
    from transformer.pipelines.auto import load
    from transformer.runtime.allocator import retain_heap

    retain_heap()
    note_missing_kernels()
    pipeline = load(model, precision=precision, search=search or GREEDY)
    if not isinstance(pipeline, wanted):
        raise ConfigError(f"{model} is not a {name}; see `transformer info {model}` for its task")
    return pipeline
