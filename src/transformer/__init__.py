"""The Transformer of "Attention Is All You Need": readable like the paper, usable like a product."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer.decoding import Search
    from transformer.errors import TransformerError
    from transformer.generation import Generator
    from transformer.loading import load
    from transformer.recipe import Recipe, load_recipe
    from transformer.recognition import ImageClassifier, TextEncoder
    from transformer.run import RunResult, train
    from transformer.transformer import Transformer, build_transformer
    from transformer.translation import Translation, Translator

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

_HOMES = {
    "Generator": "generation",
    "ImageClassifier": "recognition",
    "Recipe": "recipe",
    "RunResult": "run",
    "Search": "decoding",
    "TextEncoder": "recognition",
    "Transformer": "transformer",
    "TransformerError": "errors",
    "Translation": "translation",
    "Translator": "translation",
    "build_transformer": "transformer",
    "load": "loading",
    "load_recipe": "recipe",
    "train": "run",
}


def __getattr__(name: str) -> Any:
    """Loads a public name on first use (PEP 562), so that importing the package costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'transformer' has no attribute {name!r}")
    return getattr(import_module(f"transformer.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
