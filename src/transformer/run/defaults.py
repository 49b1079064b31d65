"""Defaults for the keys that a recipe leaves out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import Field, ValidationError

from transformer.config import Config
from transformer.errors import ConfigError
from transformer.models import family
from transformer.models.kinds import ModelConfig
from transformer.run.recipe import Recipe, describe_recipe_problems, make_model_config

Model = TypeVar("Model", bound=ModelConfig, covariant=True)


class TaskDefaults(Config):
    """Defaults of a task for keys that a recipe does not set.

    Attributes:
        vocab_size: Vocabulary size of the tokenizer.
        normalize: Whether the tokenizer normalizes the text.
        model: Keys of the `model` section.
        training: Keys of the `training` section.
        epochs: Number of epochs, from which `training.max_steps` is computed.
        presets: Presets from small to large among which `training.minutes` may choose, the default the last; empty
            without a choice.
    """

    vocab_size: int | None = None
    normalize: bool = False
    model: dict[str, Any] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)
    epochs: int = 10
    presets: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompleteRecipe(Generic[Model]):
    """A recipe without unset keys, except for those that depend on the prepared data or the device.

    Attributes:
        recipe: The recipe.
        model: Its `model` section.
        epochs: Number of epochs from which the length of the run is computed.
        sizes: Models by preset, from small to large, among which `training.minutes` chooses; empty if the recipe sets
            the size.
    """

    recipe: Recipe
    model: Model
    epochs: int
    sizes: Mapping[str, ModelConfig] = field(default_factory=dict[str, ModelConfig])


def corpus_defaults(recipe: Recipe, pairs: int) -> TaskDefaults:
    """Returns the defaults of a translation recipe for a corpus of `pairs` sentence pairs."""
    size = next(size for size in SIZES if pairs < size.below_pairs)
    family_name = recipe.model.family_name if recipe.model else "transformer"
    model: dict[str, Any] = {"family": family_name, "dropout": size.dropout}
    presets = family(family_name).presets()
    model["preset"] = size.preset if size.preset in presets else next(iter(presets))
    smaller = dict.fromkeys(other.preset for other in SIZES if other.below_pairs <= size.below_pairs)
    if family_name != "t5":
        model["share_embeddings"] = "all" if recipe.tokenizer.joint else "target"
    return TaskDefaults(
        vocab_size=size.vocab_size, normalize=True, model=model, epochs=size.epochs,
        presets=tuple(smaller) if smaller.keys() <= presets.keys() else (),
    )  # fmt: skip


def complete(recipe: Recipe, defaults: TaskDefaults) -> CompleteRecipe[ModelConfig]:
    """Fills in the unset keys of a recipe, except for the length of the run and its schedule.

    Args:
        recipe: Recipe as the user wrote it.
        defaults: Defaults of its task.

    Raises:
        ConfigError: A key of the recipe contradicts a default.
    """
    recipe = fill_in(recipe, "tokenizer", {"vocab_size": defaults.vocab_size, "normalize": defaults.normalize})
    explicit = recipe.model.model_dump(include=recipe.model.model_fields_set) if recipe.model else {}
    try:
        model = make_model_config({**defaults.model, **explicit})
        sizes = {
            preset: make_model_config({**defaults.model, "preset": preset, **explicit})
            for preset in (() if explicit.keys() & SIZE_KEYS else defaults.presets)
        }
    except ValidationError as error:
        raise ConfigError(f"model: {describe_recipe_problems(error, {})}") from error
    explicit_keys = recipe.training.model_fields_set
    recipe = recipe.with_keys("training", {k: v for k, v in defaults.training.items() if k not in explicit_keys})
    return CompleteRecipe(recipe.model_copy(update={"model": model}), model, defaults.epochs, sizes)


def fill_in_length(recipe: Recipe, epochs: int, steps_per_epoch: int) -> Recipe:
    """Fills in the unset keys that depend on the number of updates per epoch, which is known after tokenization."""
    max_steps = recipe.training.max_steps or max(MIN_STEPS, epochs * steps_per_epoch)
    interval = max(100, min(5000, steps_per_epoch))
    warmup_steps = max(MIN_STEPS // 5, min(4000, WARMUP_EPOCHS * steps_per_epoch))
    intervals = {"validate_every": interval, "save_every": interval}
    length = {"max_steps": max_steps, "warmup_steps": warmup_steps, "decay_steps": max_steps, **intervals}
    return fill_in(recipe, "training", length)


def fill_in(recipe: Recipe, section: str, values: Mapping[str, Any]) -> Recipe:
    """Returns the recipe with the given values for those keys of a section that are not set."""
    keys = getattr(recipe, section)
    return recipe.with_keys(section, {key: value for key, value in values.items() if getattr(keys, key) is None})


class CorpusSize(Config):
    """Defaults for corpora of fewer than `below_pairs` pairs."""

    below_pairs: float
    preset: str
    dropout: float
    vocab_size: int
    epochs: int


MIN_STEPS, WARMUP_EPOCHS = 1000, 4
SIZE_KEYS = frozenset(["d_model", "N", "h", "d_ff", "encoder_layers", "decoder_layers", "d_k", "d_v"])
"""Keys of a model's size; a recipe that sets one of them chooses the model itself."""
SIZES = (
    CorpusSize(below_pairs=5_000, preset="mini", dropout=0.3, vocab_size=2_000, epochs=60),
    CorpusSize(below_pairs=50_000, preset="mini", dropout=0.3, vocab_size=4_000, epochs=22),
    CorpusSize(below_pairs=100_000, preset="mini", dropout=0.2, vocab_size=8_000, epochs=22),
    CorpusSize(below_pairs=1_000_000, preset="small", dropout=0.1, vocab_size=16_000, epochs=20),
    CorpusSize(below_pairs=1e18, preset="base", dropout=0.1, vocab_size=32_000, epochs=10),
)
