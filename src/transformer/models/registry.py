"""Discovers the model families: every folder beside this file with `config.py` and `model.py` is one."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from transformer.errors import ConfigError
from transformer.models.kinds import ModelConfig

if TYPE_CHECKING:
    from torch import nn

    from transformer.models.huggingface.format import HuggingFaceFormat


@dataclass(frozen=True)
class Family:
    """One family of models.

    Attributes:
        name: Name of the family and of its folder.
        config: Class of its configurations.
    """

    name: str
    config: type[ModelConfig]

    def build(self, config: ModelConfig) -> "nn.Module":
        """Builds a freshly initialized model from a configuration."""
        return import_module(f"transformer.models.{self.name}.model").build(config)

    def weights(self) -> "HuggingFaceFormat[ModelConfig]":
        """Returns the Hugging Face format of its models."""
        return import_module(f"transformer.models.{self.name}.weights").FORMAT

    def published_types(self) -> tuple[str, ...]:
        """Returns the values of `model_type` in published configurations that it supports."""
        return self.weights().model_types

    @property
    def kind(self) -> str:
        """Kind of its models: "encoder-decoder", "language model", "encoder" or "image encoder"."""
        return self.config.kind

    @property
    def reads_text(self) -> bool:
        """Whether its models have tokenizers."""
        return self.kind != "image encoder"

    def presets(self) -> dict[str, dict[str, object]]:
        """Returns the presets of the family; every family has one called `tiny`."""
        return import_module(f"transformer.models.{self.name}.config").PRESETS


def family_names() -> list[str]:
    """Returns the names of all families, sorted."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/config.py"))


def family(name: str) -> Family:
    """Returns the family with a name.

    Raises:
        ConfigError: No family has this name.
    """
    if name not in family_names():
        raise ConfigError(f"model.family={name!r} is unknown; choose one of {', '.join(family_names())}")
    return Family(name, import_module(f"transformer.models.{name}.config").Config)
