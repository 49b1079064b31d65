"""The text of a recipe: its TOML file, environment variables, and values as they are typed in a shell."""

import json
import os
import re
import tomllib
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Union, get_args, get_origin

from transformer.config import Config
from transformer.errors import ConfigError

POSITION: Final = re.compile(r"at line (\d+), column (\d+)")
VARIABLE: Final = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
ESCAPED: Final = re.compile(r'^\s*[\w.-]+\s*=[^#\n]*?"(?P<text>[^"\n]*\\[^"\n]*)"', re.MULTILINE)
"""A value in double quotes with a backslash."""
ESCAPED_PATH: Final = re.compile(r"[A-Za-z]:[^\x07-\x0d]*[\x07-\x0d]")
"""A path of Windows whose backslashes were read as escapes: a tab instead of `\\t`."""
UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a recipe file and expands the environment variables in its `data` section.

    Raises:
        ConfigError: The file cannot be read or is not TOML, a variable is not set, or a path has control characters.
    """
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        reason = error.strerror if isinstance(error, OSError) else "a path cannot hold a NUL character"
        raise ConfigError(f"{path}: {reason}; give a recipe file, or --source and --target") from error
    if content.startswith(UTF16_MARKS):
        raise ConfigError(f"{path}: the file is UTF-16; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig")  # editors on Windows write a byte order mark
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}, byte {error.start + 1}: not UTF-8; save the file as UTF-8") from error
    try:
        tree = tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(f"{path}: not TOML (too many nested brackets); see recipes/ for examples") from error
    except tomllib.TOMLDecodeError as error:
        if escaped := ESCAPED.search(text):
            raise ConfigError(_describe_escape(path, text, escaped)) from error
        position = POSITION.search(str(error))
        place = f"line {position[1]}, column {position[2]}" if position else "a key or value is not finished"
        raise ConfigError(f"{path}: not TOML ({place}); see recipes/ for examples") from error
    data = tree.get("data")
    if isinstance(data, dict):
        for key, value in data.items():
            if any(ESCAPED_PATH.match(item) for _, item in _texts(value, "")) and (escaped := ESCAPED.search(text)):
                raise ConfigError(f"{_describe_escape(path, text, escaped)} (data.{key} has control characters)")
        tree["data"] = {key: _expand_variables(value) for key, value in data.items()}
    return tree


def _describe_escape(path: Path, text: str, escaped: re.Match[str]) -> str:
    line = text.count("\n", 0, escaped.start("text")) + 1
    return (
        f"{path}, line {line}: a backslash between double quotes begins an escape; write the path between single quotes"
        f": '{escaped.group('text')}'"
    )


def check_no_nul(tree: Mapping[str, Any], name: str) -> None:
    """Rejects text with a NUL character, which no path, language or model can have.

    Raises:
        ConfigError: A value has one.
    """
    for section, keys in tree.items():
        for key, text in _texts(keys, section):
            if "\0" in text:
                raise ConfigError(f"{name}: {key}={text!r:.80} holds a NUL character; leave it out")


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yields all texts in a value with their keys."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, key)


def _expand_variables(value: Any) -> Any:
    if isinstance(value, list):
        return [_expand_variables(item) for item in value]
    if isinstance(value, dict):
        return {key: _expand_variables(item) for key, item in value.items()}
    return _expand_text(value) if isinstance(value, str) else value


def _expand_text(text: str) -> str:
    """Substitutes environment variables, written `${NAME}` or `${NAME:-default}`."""

    def value(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        setting = os.environ.get(name) if default is None else os.environ.get(name, default)
        if setting is None:
            raise ConfigError(f"${{{match[1]}}} in {text!r} is not set; export {match[1]}=...")
        return setting

    return VARIABLE.sub(value, text)


def toml_value(value: Any) -> str:
    """Returns a value as TOML; mappings become inline tables."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def parse_override(override: str) -> tuple[str, str, Any]:
    """Returns section, key and value of an argument of `--set`; a value that is not TOML is a text.

    Raises:
        ConfigError: The argument is not of the form `section.key=value`.
    """
    key, equals, text = override.partition("=")
    section, dot, name = key.strip().partition(".")
    if not equals or not dot or not name:
        raise ConfigError(f"--set {override!r} is not section.key=value; write e.g. --set training.max_steps=500")
    return section, name, _parse_value(text)


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def inner_keys(config: type[Config]) -> Iterator[str]:
    """Yields the keys of the tables that a section may hold, as `table.key`."""
    for name, field in config.model_fields.items():
        for kind in _kinds(field.annotation):
            if isinstance(kind, type) and issubclass(kind, Config):
                yield from (f"{name}.{key}" for key in kind.model_fields)


def takes_list(config: type[Config] | None, key: str) -> bool:
    """Whether a key takes a list and no text."""
    if config is None or key not in config.model_fields:
        return False
    kinds = _kinds(config.model_fields[key].annotation)
    return tuple in kinds and str not in kinds


def _kinds(annotation: Any) -> set[Any]:
    """Returns the types of a value, without their parameters."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return {kind for part in get_args(annotation) for kind in _kinds(part)}
    return {origin or annotation}


def split_list(value: Any) -> Any:
    """Returns the list that a user typed in a shell: `en,de`, or `[en, de]`, from which a shell took the quotes."""
    if not isinstance(value, str):
        return value if value is None or isinstance(value, list | tuple) else [value]
    text = value.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return [_parse_value(item.strip()) for item in text.split(",") if item.strip()]
