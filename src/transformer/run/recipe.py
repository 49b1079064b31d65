"""One file describes a run: the recipe, its overrides, and what is filled in by the size of the corpus."""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, SerializeAsAny, ValidationError, field_validator, model_validator

from transformer.config import Config
from transformer.data.config import TaskConfig
from transformer.data.task_configs import TASKS
from transformer.errors import ConfigError
from transformer.models import family
from transformer.tokenizers.config import TokenizerConfig
from transformer.training.config import TrainingConfig

VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class Recipe(Config):
    """Everything that decides a run. `model` is the configuration of the family that `model.family` names.

    `model.preset` stands for the family's settings of that name; keys beside it override them.
    """

    data: SerializeAsAny[TaskConfig]
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: SerializeAsAny[Config] | None = Field(default=None, description="chosen by corpus size if not set")
    training: TrainingConfig = TrainingConfig()

    @field_validator("data", mode="before")
    @classmethod
    def _of_its_task(cls, value: Any) -> Any:
        return make_data_settings(value) if isinstance(value, Mapping) else value

    @field_validator("model", mode="before")
    @classmethod
    def _of_its_family(cls, value: Any) -> Any:
        return make_model_config(value) if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _fits_the_tokenizer(self) -> "Recipe":
        if self.model is None:
            return self
        given = self.model.model_dump(include=self.model.model_fields_set, exclude_none=True)
        for key in ("src_vocab_size", "tgt_vocab_size", "vocab_size"):
            if given.get(key):
                raise ValueError(f"model.{key} has to come from the tokenizer; set tokenizer.vocab_size")
        if given.get("share_embeddings") == "all" and not self.tokenizer.joint:
            raise ValueError(
                "model.share_embeddings='all' needs one vocabulary, but tokenizer.joint=false; share 'target' or 'none'"
            )
        return self

    def to_toml(self) -> str:
        """The recipe as a file that `load_recipe` reads; unset keys are left out."""
        sections = self.model_dump(exclude_none=True)
        return "\n".join(
            f"[{name}]\n" + "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in keys.items())
            for name, keys in sections.items()
        )


def make_data_settings(values: Mapping[str, Any]) -> TaskConfig:
    """The settings of a recipe's `data` section, of the task that it names.

    Raises:
        ConfigError: the task is unknown.
        ValidationError: a value is wrong.
    """
    task = values.get("task", "translation")
    if task not in TASKS:
        raise ConfigError(f"data.task={task!r} is unknown; choose one of {', '.join(TASKS)}")
    return TASKS[task].model_validate(values)


def make_model_config(values: Mapping[str, Any]) -> Config:
    """The configuration of a recipe's `model` section.

    Raises:
        ConfigError: the family or the preset is unknown.
        ValidationError: a value is wrong.
    """
    given = dict(values)
    model_family = family(str(given.get("family", "transformer")))
    preset = given.pop("preset", None)
    presets = model_family.presets()
    if preset is not None and preset not in presets:
        raise ConfigError(f"model.preset={preset!r} is unknown; choose one of {', '.join(presets)}")
    return model_family.config.model_validate({**presets.get(preset or "", {}), **given})


def load_recipe(path: Path | None, overrides: Iterable[str] = (), values: Mapping[str, Any] | None = None) -> Recipe:
    """Reads a recipe file and applies overrides.

    Args:
        path: of the TOML file; None starts from `values` alone.
        overrides: `section.key=value` texts, as after `--set`; the value is read as TOML, or else as a text.
        values: sections and keys from elsewhere, such as `--source`.

    Raises:
        ConfigError: the file cannot be read, or a key or value is not one of a recipe.
    """
    tree: dict[str, Any] = {} if path is None else _read_toml(path)
    given = [(section, key, value) for section, keys in (values or {}).items() for key, value in keys.items()]
    for section, key, value in [*given, *map(_parse_override, overrides)]:
        if not isinstance(tree.setdefault(section, {}), dict):
            raise ConfigError(f"{path}: {section}={tree[section]!r} is not a section; write [{section}] and its keys")
        tree[section][key] = value
    return parse_recipe(tree, str(path) if path else "the recipe")


def parse_recipe(tree: Mapping[str, Any], name: str = "the recipe") -> Recipe:
    """Validates a recipe given as nested mappings.

    Raises:
        ConfigError: a key or value is not one of a recipe; all that is wrong is listed in one line.
    """
    try:
        recipe = Recipe.model_validate(tree)
    except ValidationError as error:
        problems = "; ".join(_problem(entry) for entry in error.errors())
        raise ConfigError(f"{name}: {problems}") from error
    refuse_unwritable(recipe.to_toml(), name)
    return recipe


def refuse_unwritable(text: str, name: str) -> None:
    """Refuses names of files that a run's own files could not hold: bytes of a name that are not UTF-8.

    Raises:
        ConfigError: the text cannot be written as UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        shown = text[max(0, error.start - 20) : error.end]
        raise ConfigError(f"{name}: the name {shown!r} is not UTF-8; rename the file or folder") from error


def _problem(entry: Any) -> str:
    # Below section and key only numbers of list items say something; the rest is pydantic's names of a union's members.
    key = ".".join(str(part) for place, part in enumerate(entry["loc"]) if place < 2 or isinstance(part, int))
    if entry["type"] == "extra_forbidden":
        return f"{key} is not a key of a recipe; `transformer train --help` lists them"
    if entry["type"] == "missing":
        return f"{key} is missing"
    message = entry["msg"].removeprefix("Value error, ")
    return f"{key}={entry['input']!r}: {message}" if key and entry["type"] != "value_error" else message


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give a recipe file, or --source and --target") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML ({error}); see recipes/ for examples") from error
    data = tree.get("data")
    if isinstance(data, dict):
        tree["data"] = {key: _expanded(value) for key, value in data.items()}
    return tree


def _expanded(value: Any) -> Any:
    if isinstance(value, list):
        return [_expanded(item) for item in value]
    return _expand(value) if isinstance(value, str) else value


def _expand(text: str) -> str:
    """Replaces `${NAME}` and `${NAME:-default}` from the environment."""

    def value(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        found = os.environ.get(name) if default is None else os.environ.get(name, default)
        if found is None:
            raise ConfigError(f"${{{match[1]}}} in {text!r} is not set; export {match[1]}=...")
        return found

    return VARIABLE.sub(value, text)


def _parse_override(override: str) -> tuple[str, str, Any]:
    key, equals, text = override.partition("=")
    section, dot, name = key.strip().partition(".")
    if not equals or not dot or not name:
        raise ConfigError(f"--set {override!r} is not section.key=value; write e.g. --set training.max_steps=500")
    try:
        return section, name, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return section, name, text


class Defaults(Config):
    """What a task takes where a recipe leaves it open.

    Attributes:
        vocab_size: of the tokenizer.
        model: keys of the `model` section.
        training: keys of the `training` section.
        epochs: length of the run.
    """

    vocab_size: int | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)
    epochs: int = 10


def fill_in(recipe: Recipe, pairs: int, steps_per_epoch: int | None = None, earlier: Recipe | None = None) -> Recipe:
    """Sets what the recipe of a translator leaves open by the size of the corpus; see `complete`.

    Raises:
        ConfigError: a given size does not fit to one filled in.
    """
    size = next(size for size in SIZES if pairs < size.below_pairs)
    family_name = recipe.model.model_dump()["family"] if recipe.model else "transformer"
    model: dict[str, Any] = {"family": family_name, "dropout": size.dropout}
    known = family(family_name).presets()
    model["preset"] = size.preset if size.preset in known else next(iter(known))
    if family_name != "t5":
        model["share_embeddings"] = "all" if recipe.tokenizer.joint else "target"
    defaults = Defaults(vocab_size=size.vocab_size, model=model, epochs=size.epochs)
    return complete(recipe, defaults, steps_per_epoch, earlier)


def complete(
    recipe: Recipe, defaults: Defaults, steps_per_epoch: int | None = None, earlier: Recipe | None = None
) -> Recipe:
    """Sets what the recipe leaves open.

    Args:
        recipe: as given.
        defaults: of its task.
        steps_per_epoch: known once the text is encoded; without it, the length of the run stays open.
        earlier: the filled-in recipe of the run that goes on, whose schedule holds although `max_steps` may change.

    Raises:
        ConfigError: a given size does not fit to one filled in.
    """
    tokenizer, training = recipe.tokenizer, recipe.training
    if tokenizer.vocab_size is None:
        tokenizer = tokenizer.model_copy(update={"vocab_size": defaults.vocab_size})
    given = recipe.model.model_dump(include=recipe.model.model_fields_set) if recipe.model else {}
    try:
        model = make_model_config({**defaults.model, **given})
    except ValidationError as error:
        raise ConfigError("model: " + "; ".join(_problem(entry) for entry in error.errors())) from error
    open_keys = {key: value for key, value in defaults.training.items() if key not in training.model_fields_set}
    training = training.model_copy(update=open_keys)
    if steps_per_epoch is not None:
        training = _fill_in_training(training, defaults.epochs, steps_per_epoch, earlier.training if earlier else None)
    return recipe.model_copy(update={"tokenizer": tokenizer, "model": model, "training": training})


def _fill_in_training(
    training: TrainingConfig, epochs: int, steps_per_epoch: int, earlier: TrainingConfig | None
) -> TrainingConfig:
    max_steps = training.max_steps or max(MIN_STEPS, epochs * steps_per_epoch)
    warmup_steps = max(MIN_STEPS // 5, min(4000, WARMUP_EPOCHS * steps_per_epoch))
    interval = max(100, min(5000, steps_per_epoch))
    defaults = {
        "max_steps": max_steps,
        "warmup_steps": earlier.warmup_steps if earlier else warmup_steps,
        "decay_steps": earlier.decay_steps if earlier else max_steps,
        "validate_every": interval,
        "save_every": interval,
    }
    open_keys = {key: value for key, value in defaults.items() if getattr(training, key) is None}
    return training.model_copy(update=open_keys)


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
