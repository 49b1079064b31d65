"""Finds the families: a folder beside this file with `config.py` and `model.py` is one."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.config import Config
from transformer.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from transformer.models.huggingface.format import Format


@dataclass(frozen=True)
class Family:
    """One family of models.

    Attributes:
        name: of its folder.
        config: the class of its configuration, which has `presets()`.
    """

    name: str
    config: type[Config]

    def build(self, config: Config) -> "nn.Module":
        """A freshly initialized model of the given configuration."""
        return import_module(f"transformer.models.{self.name}.model").build(config)

    def weights(self) -> "Format":
        """How its models are published."""
        return import_module(f"transformer.models.{self.name}.weights").FORMAT

    def published_types(self) -> tuple[str, ...]:
        """The `model_type`s of published configurations that it reads."""
        return self.weights().model_types

    @property
    def kind(self) -> str:
        """What its models are: "encoder-decoder", "language model", "encoder" or "image encoder"."""
        return str(import_module(f"transformer.models.{self.name}.config").KIND)

    @property
    def reads_text(self) -> bool:
        """Whether its models have tokenizers."""
        return self.kind != "image encoder"

    def presets(self) -> dict[str, dict[str, Any]]:
        """The named settings of the family; every family has one called `tiny`."""
        return import_module(f"transformer.models.{self.name}.config").PRESETS


def family_names() -> list[str]:
    """The names of all families, sorted."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/config.py"))


def family(name: str) -> Family:
    """The family of a name.

    Raises:
        ConfigError: there is none.
    """
    if name not in family_names():
        raise ConfigError(f"model.family={name!r} is unknown; choose one of {', '.join(family_names())}")
    return Family(name, import_module(f"transformer.models.{name}.config").Config)
