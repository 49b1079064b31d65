"""The recipe of a run: its TOML file, overrides, and defaults that depend on the size of the corpus."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, SerializeAsAny, ValidationError, field_validator, model_validator

from transformer.config import Config, describe_problems
from transformer.data.config import TaskConfig
from transformer.data.task_configs import TASKS
from transformer.errors import ConfigError
from transformer.models import family, family_names
from transformer.models.kinds import ModelConfig
from transformer.recipes import find_recipe
from transformer.run.recipe_text import check_no_nul, parse_override, read_toml, split_list, takes_list
from transformer.tokenizers.config import TokenizerConfig
from transformer.training.config import TrainingConfig

UNKNOWN_KEY = "is not a key of a recipe; `transformer recipes --keys` lists them"


class Recipe(Config):
    """Complete description of a training run.

    `model` is the configuration of the family that `model.family` names. `model.preset` selects a preset of that
    family, which the other keys of the section override.
    """

    data: SerializeAsAny[TaskConfig]
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

    def to_toml(self) -> str:
        """Returns the recipe as TOML that `load_recipe` reads; unset keys are omitted."""
        sections = self.model_dump(exclude_none=True)
        return "\n".join(
            f"[{name}]\n" + "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in keys.items())
            for name, keys in sections.items()
        )


def make_data_config(values: Mapping[str, Any]) -> TaskConfig:
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
    assignments = [(section, key, value) for section, keys in (values or {}).items() for key, value in keys.items()]
    assignments += map(parse_override, overrides)
    for section, key, value in assignments:
        if not isinstance(tree.setdefault(section, {}), dict):
            raise ConfigError(
                f"{path}: {section}={tree[section]!r:.80} is not a section; write [{section}] and its keys"
            )
        tree[section][key] = value
    for section, key, value in assignments:
        if takes_list(_section_config(tree, section), key):
            tree[section][key] = split_list(value)
    return parse_recipe(tree, str(path) if path else "the recipe")


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
        raise ConfigError(f"{name}: {_describe(error)}") from error
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


def _describe(error: ValidationError) -> str:
    """Describes a validation error by section and key; deeper names are those of alternatives of a type."""
    return describe_problems(error, max_depth=2).replace("is not a known key", UNKNOWN_KEY)


class TaskDefaults(Config):
    """Defaults of a task for keys that a recipe does not set.

    Attributes:
        vocab_size: Vocabulary size of the tokenizer.
        normalize: Whether the tokenizer normalizes the text.
        model: Keys of the `model` section.
        training: Keys of the `training` section.
        epochs: Number of epochs, from which `training.max_steps` is computed.
    """

    vocab_size: int | None = None
    normalize: bool = False
    model: dict[str, Any] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)
    epochs: int = 10


def complete_by_corpus_size(recipe: Recipe, pairs: int, steps_per_epoch: int | None = None) -> Recipe:
    """Fills in the unset keys of a translation recipe by the size of the corpus; see `complete`.

    Raises:
        ConfigError: A key of the recipe contradicts a default.
    """
    size = next(size for size in SIZES if pairs < size.below_pairs)
    family_name = recipe.model.family_name if recipe.model else "transformer"
    model: dict[str, Any] = {"family": family_name, "dropout": size.dropout}
    presets = family(family_name).presets()
    model["preset"] = size.preset if size.preset in presets else next(iter(presets))
    if family_name != "t5":
        model["share_embeddings"] = "all" if recipe.tokenizer.joint else "target"
    defaults = TaskDefaults(vocab_size=size.vocab_size, normalize=True, model=model, epochs=size.epochs)
    return complete(recipe, defaults, steps_per_epoch)


def complete(recipe: Recipe, defaults: TaskDefaults, steps_per_epoch: int | None = None) -> Recipe:
    """Fills in the unset keys of a recipe.

    Args:
        recipe: Recipe as the user wrote it.
        defaults: Defaults of its task.
        steps_per_epoch: Number of updates per epoch, known after tokenization. If None, the length of the run and its
            schedule stay unset.

    Raises:
        ConfigError: A key of the recipe contradicts a default.
    """
    tokenizer, training = recipe.tokenizer, recipe.training
    if tokenizer.vocab_size is None:
        tokenizer = tokenizer.model_copy(update={"vocab_size": defaults.vocab_size})
    if tokenizer.normalize is None:
        tokenizer = tokenizer.model_copy(update={"normalize": defaults.normalize})
    explicit = recipe.model.model_dump(include=recipe.model.model_fields_set) if recipe.model else {}
    try:
        model = make_model_config({**defaults.model, **explicit})
    except ValidationError as error:
        raise ConfigError(f"model: {_describe(error)}") from error
    unset_keys = {key: value for key, value in defaults.training.items() if key not in training.model_fields_set}
    training = training.model_copy(update=unset_keys)
    completed = recipe.model_copy(update={"tokenizer": tokenizer, "model": model, "training": training})
    return completed if steps_per_epoch is None else _fill_in_length(completed, defaults.epochs, steps_per_epoch)


def _fill_in_length(recipe: Recipe, epochs: int, steps_per_epoch: int) -> Recipe:
    """Fills in the unset keys that depend on the number of updates per epoch."""
    max_steps = recipe.training.max_steps or max(MIN_STEPS, epochs * steps_per_epoch)
    interval = max(100, min(5000, steps_per_epoch))
    return fill_in_training(
        recipe,
        {
            "max_steps": max_steps,
            "warmup_steps": max(MIN_STEPS // 5, min(4000, WARMUP_EPOCHS * steps_per_epoch)),
            "decay_steps": max_steps,
            "validate_every": interval,
            "save_every": interval,
        },
    )


def fill_in_training(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """Returns the recipe with the given values for those keys of `training` that are not set."""
    unset_keys = {key: value for key, value in values.items() if getattr(recipe.training, key) is None}
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=unset_keys)})


class CorpusSize(Config):
    """Defaults for corpora of fewer than `below_pairs` pairs."""

    below_pairs: float
    preset: str
    dropout: float
    vocab_size: int
    epochs: int


MIN_STEPS, WARMUP_EPOCHS = 1000, 4
SIZES = (
    CorpusSize(below_pairs=5_000, preset="mini", dropout=0.3, vocab_size=2_000, epochs=60),
    CorpusSize(below_pairs=50_000, preset="mini", dropout=0.3, vocab_size=4_000, epochs=22),
    CorpusSize(below_pairs=100_000, preset="mini", dropout=0.2, vocab_size=8_000, epochs=22),
    CorpusSize(below_pairs=1_000_000, preset="small", dropout=0.1, vocab_size=16_000, epochs=20),
    CorpusSize(below_pairs=1e18, preset="base", dropout=0.1, vocab_size=32_000, epochs=10),
)
