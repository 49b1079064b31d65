"""Loading of the model of a command."""

from pathlib import Path
from typing import TypeVar

from transformer.cli.hub import obtain_model
from transformer.cli.kernel_note import note_missing_kernels
from transformer.errors import ConfigError
from transformer.options.search import GREEDY, Search

Pipeline = TypeVar("Pipeline")


def load_pipeline(
    model: Path,
    name: str,
    *wanted: type[Pipeline],
    precision: str = "auto",
    device: str = "auto",
    search: Search = GREEDY,
    special_tokens: bool = False,
) -> Pipeline:
    """Loads a pipeline, and keeps freed memory in the process for reuse.

    Args:
        model: Folder of the model.
        name: Kind of model for messages, e.g. "language model".
        wanted: Classes of the pipeline.
        precision: Precision of the weights, as in `load`.
        device: Device, as in `load`.
        search: Options of the search; the default is greedy.
        special_tokens: Whether the names of special tokens in texts are these tokens.

    Raises:
        ConfigError: The model is of another kind.
    """
    from transformer.pipelines.auto import load  # loads torch
    from transformer.runtime.allocator import retain_heap

    obtain_model(model)
    retain_heap()
    note_missing_kernels()
    pipeline = load(model, precision=precision, device=device, search=search, special_tokens=special_tokens)
    if not isinstance(pipeline, wanted):
        raise ConfigError(f"{model} is not a {name}; see `transformer info {model}` for its task")
    return pipeline
