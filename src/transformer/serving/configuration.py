"""Reads the settings of the server from a TOML file and the command line."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from transformer.config import describe_problems
from transformer.errors import ConfigError
from transformer.serving.settings import ServerSettings

PATHS = ("keys", "glossaries")
"""Settings that are paths; in a file, they are relative to its folder."""


def load_settings(
    path: Path | None = None, models: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> ServerSettings:
    """Returns the settings; options override those of the file, and models are added to its models.

    Args:
        path: TOML file with the fields of `ServerSettings`.
        models: Models as `MODEL` or `NAME=MODEL`.
        options: Further settings; those that are None are left out.

    Raises:
        ConfigError: A setting is unknown or wrong, or models are missing.
    """
    values = {} if path is None else _read(path)
    values |= {name: value for name, value in (options or {}).items() if value is not None}
    if models:
        values["models"] = {**values.get("models", {}), **parse_models(models)}
    if not values.get("models"):
        raise ConfigError("no model is given; name a model folder, e.g. `transformer serve runs/first`")
    try:
        return TypeAdapter(ServerSettings).validate_python(values)
    except ValidationError as error:
        origin = "" if path is None else f" (settings from {path} and the command line)"
        raise ConfigError(f"{describe_problems(error)}{origin}") from error


def parse_models(models: Sequence[str]) -> dict[str, str]:
    """Returns the models by name; without a name, the last part of a path is its name.

    Raises:
        ConfigError: A name is empty, or two models have the same.
    """
    named: dict[str, str] = {}
    for model in models:
        name, equals, source = model.partition("=")
        if not equals:
            name, source = Path(model).resolve().name, model
        if not name or not source:
            raise ConfigError(f"{model!r} is not of the form MODEL or NAME=MODEL; give both parts")
        if name in named:
            raise ConfigError(f"two models are named {name!r}; give them names, e.g. first={named[name]}")
        named[name] = source
    return named


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read; check the path and permissions") from error
    except (tomllib.TOMLDecodeError, UnicodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}; see `transformer serve --help`") from error
    for name in PATHS:
        if isinstance(values.get(name), str):
            values[name] = path.parent / values[name]
    return values
