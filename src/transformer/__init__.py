"""The Transformer of "Attention Is All You Need": code as readable as the paper, ready for production."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from transformer.errors import TransformerError
    from transformer.options.search import Search
    from transformer.pipelines.auto import load
    from transformer.pipelines.classification import ImageClassifier, TextEncoder
    from transformer.pipelines.text_generation import Generator
    from transformer.pipelines.translation.results import Translation
    from transformer.pipelines.translation.translator import Translator
    from transformer.run.recipe import Recipe, load_recipe
    from transformer.run.train import RunResult, train
    from transformer.transformer import Transformer, build_transformer

__all__ = [
    "Generator",
    "ImageClassifier",
    "Recipe",
    "RunResult",
    "Search",
    "TextEncoder",
    "Transformer",
    "TransformerError",
    "Translation",
    "Translator",
    "build_transformer",
    "load",
    "load_recipe",
    "train",
]

_MODULES = {
    "Generator": "pipelines.text_generation",
    "ImageClassifier": "pipelines.classification",
    "Recipe": "run.recipe",
    "RunResult": "run.train",
    "Search": "options.search",
    "TextEncoder": "pipelines.classification",
    "Transformer": "transformer",
    "TransformerError": "errors",
    "Translation": "pipelines.translation.results",
    "Translator": "pipelines.translation.translator",
    "build_transformer": "transformer",
    "load": "pipelines.auto",
    "load_recipe": "run.recipe",
    "train": "run.train",
}


def __getattr__(name: str) -> Any:
    """Imports a public name on first use (PEP 562), so that importing the package stays cheap."""
    if name == "__version__":
        from importlib.metadata import version

        return version("transformer")
    if name not in _MODULES:
        raise AttributeError(f"module 'transformer' has no attribute {name!r}")
    return getattr(import_module(f"transformer.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Lists the public names."""
    return sorted(__all__)
