"""Finds the families: a folder beside this file with `config.py` and `model.py` is one."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.errors import ConfigError
from transformer.settings import Settings

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Family:
    """One family of models.

    Attributes:
        name: of its folder.
        config: the class of its configuration, which has `presets()`.
    """

    name: str
    config: type[Settings]

    def build(self, config: Settings) -> "nn.Module":
        """A freshly initialized model of the given configuration."""
        return import_module(f"transformer.models.{self.name}.model").build(config)

    def weights(self) -> Any:
        """The module that reads the published format: `read_config`, `read_tokenizers`, `read_weights`."""
        return import_module(f"transformer.models.{self.name}.weights")

    def published_types(self) -> tuple[str, ...]:
        """The `model_type`s of published configurations that it reads; none without a `weights.py`."""
        has_weights = (Path(__file__).parent / self.name / "weights.py").is_file()
        return self.weights().MODEL_TYPES if has_weights else ()

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
