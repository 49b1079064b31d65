"""The recipe of a run, as a user writes it: its TOML file and overrides."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import Field, SerializeAsAny, ValidationError, field_validator, model_validator

from transformer.config import Config, describe_problems
from transformer.data.task_configs import TASKS, AnyTaskConfig
from transformer.errors import ConfigError
from transformer.models import family, family_names
from transformer.models.kinds import ModelConfig
from transformer.recipes import find_recipe
from transformer.run.recipe_text import (
    check_no_nul,
    inner_keys,
    parse_override,
    read_toml,
    split_list,
    takes_list,
    toml_value,
)
from transformer.tokenizers.config import TokenizerConfig
from transformer.training.config import TrainingConfig

OTHER_NAMES: Final = {
    "batch_size": "training.batch_tokens", "dropout": "model.dropout", "epochs": "training.max_steps",
    "heads": "model.h", "hidden_size": "model.d_model", "layers": "model.N", "lr": "training.learning_rate",
    "steps": "training.max_steps",
}  # fmt: skip
"""Keys of recipes by names that are usual for them elsewhere, or that several sections have."""


class Recipe(Config):
    """Description of a training run; what it leaves out is chosen when the run is planned.

    `model` is the configuration of the family that `model.family` names. `model.preset` selects a preset of that
    family, which the other keys of the section override.
    """

    data: AnyTaskConfig = Field(discriminator="task")
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: SerializeAsAny[ModelConfig] | None = Field(
        default=None, description="model configuration; chosen by corpus size if not set"
    )
    training: TrainingConfig = TrainingConfig()

    @field_validator("data", mode="before")
    @classmethod
    def _parse_data(cls, value: Any) -> Any:
        return make_data_config(value) if isinstance(value, Mapping) else value

    @field_validator("model", mode="before")
    @classmethod
    def _parse_model(cls, value: Any) -> Any:
        return make_model_config(value) if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _check_vocabulary(self) -> "Recipe":
        if self.model is None:
            return self
        explicit = self.model.model_dump(include=self.model.model_fields_set, exclude_none=True)
        for key in ("src_vocab_size", "tgt_vocab_size", "vocab_size"):
            if explicit.get(key):
                raise ValueError(f"model.{key} must come from the tokenizer; set tokenizer.vocab_size")
        if explicit.get("share_embeddings") == "all" and not self.tokenizer.joint:
            raise ValueError(
                "model.share_embeddings='all' needs one vocabulary, but tokenizer.joint=false; share 'target' or 'none'"
            )
        return self

    def with_keys(self, section: str, values: Mapping[str, Any]) -> "Recipe":
        """Returns the recipe with other values for some keys of a section."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update=values)})

    def to_toml(self) -> str:
        """Returns the recipe as TOML that `load_recipe` reads; unset keys are omitted."""
        sections = self.model_dump(exclude_none=True)
        return "\n".join(
            f"[{name}]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in keys.items())
            for name, keys in sections.items()
        )


def make_data_config(values: Mapping[str, Any]) -> AnyTaskConfig:
    """Validates the `data` section of a recipe against the configuration of its task.

    Raises:
        ConfigError: The task is unknown.
        ValidationError: A value is invalid.
    """
    task = values.get("task", "translation")
    if not isinstance(task, str) or task not in TASKS:
        raise ConfigError(f"data.task={task!r:.80} is unknown; choose one of {', '.join(TASKS)}")
    return TASKS[task].model_validate(values)


def make_model_config(values: Mapping[str, Any]) -> ModelConfig:
    """Builds the model configuration that the `model` section of a recipe describes.

    Raises:
        ConfigError: The family or the preset is unknown.
        ValidationError: A value is invalid.
    """
    keys = dict(values)
    model_family = family(str(keys.get("family", "transformer")))
    preset = keys.pop("preset", None)
    presets = model_family.presets()
    if preset is not None and not (isinstance(preset, str) and preset in presets):
        raise ConfigError(f"model.preset={preset!r:.80} is unknown; choose one of {', '.join(presets)}")
    return model_family.config.model_validate({**presets.get(preset or "", {}), **keys})


def load_recipe(path: Path | None, overrides: Iterable[str] = (), values: Mapping[str, Any] | None = None) -> Recipe:
    """Reads a recipe file and applies overrides.

    Args:
        path: Path of the TOML file, or the name of a recipe that comes with the package; None starts from `values`
            alone.
        overrides: Strings of the form `section.key=value`, as for `--set`. A value that is not valid TOML is a string.
        values: Sections and keys from other sources, such as `--source`.

    Raises:
        ConfigError: The file cannot be read, or a key or value is invalid.
    """
    tree: dict[str, Any] = {} if path is None else read_toml(find_recipe(path))
    name = str(path) if path else "the recipe"
    assignments = [(section, key, value) for section, keys in (values or {}).items() for key, value in keys.items()]
    assignments += map(parse_override, overrides)
    for section, key, value in assignments:
        if not isinstance(tree.setdefault(section, {}), dict):
            raise ConfigError(
                f"{name}: {section}={tree[section]!r:.80} is not a section; write [{section}] and its keys"
            )
        _assign(tree[section], key, value, f"{name}: {section}")
    for section, key, value in assignments:
        if takes_list(_section_config(tree, section), key):
            tree[section][key] = split_list(value)
    return parse_recipe(tree, name)


def _assign(keys: dict[str, Any], key: str, value: Any, place: str) -> None:
    """Sets a key, or one of an inner table, whose name stands before a dot."""
    table, dot, inner = key.partition(".")
    if not dot:
        keys[key] = value
    elif isinstance(keys.setdefault(table, {}), dict):
        _assign(keys[table], inner, value, f"{place}.{table}")
    else:
        raise ConfigError(f"{place}.{table}={keys[table]!r:.80} is not a table, so {key} cannot be set")


def _section_config(tree: Mapping[str, Any], section: str) -> type[Config] | None:
    """Returns the class that describes a section; None if the section, or its task or family, is unknown."""
    keys = tree[section]
    if section == "data":
        return TASKS.get(str(keys.get("task", "translation")))
    if section == "model":
        name = str(keys.get("family", "transformer"))
        return family(name).config if name in family_names() else None
    return {"tokenizer": TokenizerConfig, "training": TrainingConfig}.get(section)


def parse_recipe(tree: Mapping[str, Any], name: str = "the recipe") -> Recipe:
    """Validates a recipe in the form of nested mappings.

    Raises:
        ConfigError: A key or value is invalid; the message lists all errors in one line.
    """
    check_no_nul(tree, name)
    try:
        recipe = Recipe.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(f"{name}: {describe_recipe_problems(error, tree)}") from error
    check_encodable(recipe.to_toml(), name)
    return recipe


def check_encodable(text: str, name: str) -> None:
    """Rejects file names that are not UTF-8, as the files that record them are.

    Raises:
        ConfigError: The text cannot be encoded as UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        shown = text[max(0, error.start - 20) : error.end]
        raise ConfigError(f"{name}: the name {shown!r} is not UTF-8; rename the file or folder") from error


def describe_recipe_problems(error: ValidationError, tree: Mapping[str, Any]) -> str:
    """Describes a validation error by section and key; deeper names are those of alternatives of a type.

    Args:
        error: Error of a recipe, or of one of its sections.
        tree: The sections of the recipe, whose keys are guessed where one is misspelled.
    """

    def unknown_key(match: re.Match[str]) -> str:
        similar = _similar_key(match[1], tree)
        hint = f"did you mean {similar}?" if similar else "`transformer recipes --keys` lists them"
        return f"{match[1]} is not a key of a recipe; {hint}"

    tables = [
        f"{section}.{key}"
        for section, keys in tree.items()
        if isinstance(keys, Mapping)
        for key, value in keys.items()
        if isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(item, Mapping) for item in value))
    ]
    return re.sub(r"(\S+) is not a known key", unknown_key, describe_problems(error, max_depth=2, tables=tables))


def _similar_key(key: str, tree: Mapping[str, Any]) -> str | None:
    """Returns the section, or section and key, that a misspelled or misplaced one stands for; None without one."""
    section, _, name = key.partition(".")
    sections = {name: keys if isinstance(keys := tree.get(name), Mapping) else {} for name in Recipe.model_fields}
    configs = {name: _section_config(sections, name) for name in Recipe.model_fields}
    if not name:
        return next(iter(get_close_matches(key, configs, n=1, cutoff=0.75)), None)
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    known = {place: [*config.model_fields, *inner_keys(config)] for place, config in configs.items() if config}
    misplaced = [f"{place}.{name}" for place, names in known.items() if name in names]
    similar = [f"{section}.{like}" for like in get_close_matches(name, known.get(section, ()), n=1, cutoff=0.75)]
    return next(iter([*misplaced, *similar]), None)
