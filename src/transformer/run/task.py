"""Base classes of training tasks: what a task reads and decides, and the data, objective and scores that result."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import nn

from transformer.bundle import Bundle
from transformer.errors import ConfigError
from transformer.interfaces import Dataset, Stage
from transformer.models.kinds import LabellingConfig, ModelConfig
from transformer.run.defaults import CompleteRecipe, TaskDefaults, complete
from transformer.run.recipe import Recipe
from transformer.tokenizers.pair import TokenizerPair
from transformer.training.backend import Backend
from transformer.training.config import TrainingConfig, TrainingSettings
from transformer.training.stages import MixedDataset
from transformer.training.validation import validation_loss

Model = TypeVar("Model", bound=ModelConfig)


@dataclass(frozen=True)
class Scores:
    """Results of a validation.

    Attributes:
        values: Scores by name, among them `loss` and the metrics of the task.
        signatures: Descriptions of how scores were computed, by name of the score.
        outputs: Texts that the model generated, if any.
    """

    values: dict[str, float]
    signatures: dict[str, str] = field(default_factory=dict[str, str])
    outputs: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """Prepared data of a run, with the objective and the scores that it determines.

    Attributes:
        config: Configuration of the model, with the values that the data determines, such as vocabulary sizes.
        text: Tokenizers; None if the model does not read text.
        objective: Function that wraps the model in the module that computes the training loss.
        train: Training examples.
        validation: Held-out examples.
        rows: Titles and texts of a table that sums up the data.
        facts: Statistics of the data as JSON values, stored in the provenance of the model.
        notes: Notes on the preparation, to be logged.
        provenance: Further entries for the provenance of the model.
        fallback_shares: For each kind of text, the share of its tokens that stand for a part of a character or for
            unknown text.
        stages: Parts of the run with weights of their own; empty without any.
        loss_unit: Plural noun for the elements over which the loss is averaged.
    """

    config: ModelConfig
    text: TokenizerPair | None
    objective: Callable[[nn.Module, TrainingSettings], nn.Module]
    train: Dataset
    validation: Dataset
    rows: list[tuple[str, str]]
    facts: dict[str, Any]
    notes: list[str] = field(default_factory=list[str])
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])
    fallback_shares: dict[str, float] = field(default_factory=dict[str, float])
    stages: tuple[Stage, ...] = ()
    loss_unit: str = "tokens"

    @property
    def examples(self) -> Dataset:
        """The training examples of all stages, for trials of the largest batches."""
        return MixedDataset(self.train, ()) if self.stages else self.train

    def scores(self, model: nn.Module, settings: TrainingSettings, backend: Backend) -> Scores:
        """Scores the model on the validation examples."""
        objective = self.validation_objective(model, settings)
        return Scores(validation_loss(objective, self.validation, settings.micro_batch_tokens, backend))

    def validation_objective(self, model: nn.Module, settings: TrainingSettings) -> nn.Module:
        """Returns the objective without activation checkpointing, which only training needs."""
        return self.objective(model, settings.model_copy(update={"activation_checkpointing": False}))

    def warm_up_validation(self, model: nn.Module, settings: TrainingSettings) -> None:
        """Runs the part of `scores` with the highest peak memory; nothing if only the loss is computed."""
        del model, settings

    def sample_generation(self, model: nn.Module, settings: TrainingSettings) -> tuple[float, float]:
        """Generates a batch of texts of usual length, whatever the model has learned.

        Returns:
            The number of such batches in a validation and in `calibrate`.
        """
        del model, settings
        return 0.0, 0.0

    def validation_positions(self) -> int:
        """Returns the number of tokens whose loss a validation computes, counted as in a batch without padding."""
        return int(self.validation.lengths.max(axis=1).sum())

    def calibrate(self, folder: Path, settings: TrainingSettings, backend: Backend) -> None:
        """Stores in the folder of the run's best model how sure its outputs are; nothing if it generates no text."""
        del folder, settings, backend

    def translations_jsonl(self, outputs: list[str]) -> str:
        """Returns the content of the run's `translations.jsonl`; empty if the model does not generate text."""
        del outputs
        return ""


class Task(ABC, Generic[Model]):
    """A kind of training task, created from the recipe's `data` section before any data is read.

    Attributes:
        name: Value of `data.task`.
        checksums: SHA-256 of the training and validation files, by recipe key.
        model_type: Base of the configurations of the models that the task trains.
        metrics: Allowed values of `training.best_metric`.
        has_bpe_dropout: Whether `tokenizer.dropout` works.
    """

    name: str
    checksums: Mapping[str, str]
    model_type: type[Model]
    metrics: tuple[str, ...] = ("loss",)
    has_bpe_dropout: bool = False

    @abstractmethod
    def defaults(self, recipe: Recipe) -> TaskDefaults:
        """Returns the defaults for keys that the recipe does not set."""

    def complete(self, recipe: Recipe) -> CompleteRecipe[Model]:
        """Fills in the unset keys of a recipe, see `transformer.run.defaults.complete`.

        Raises:
            ConfigError: Values contradict each other or belong to another task, or the model family does not support
                this task.
        """
        metric = recipe.training.best_metric
        if "best_metric" in recipe.training.model_fields_set and metric not in self.metrics:
            raise ConfigError(
                f"training.best_metric={metric!r} is not measured for this task; choose {' or '.join(self.metrics)}"
            )
        if recipe.tokenizer.dropout and not self.has_bpe_dropout:
            raise ConfigError("tokenizer.dropout works with data.task='translation' only; leave it out")
        completed = complete(recipe, self.defaults(recipe))
        model = completed.model
        self.check_training(completed.recipe.training, model)
        if not isinstance(model, self.model_type):
            raise ConfigError(
                f"model.family={model.family_name!r} ({model.kind}) does not support data.task={self.name!r}; choose "
                f"one of kind {self.model_type.kind}"
            )
        return CompleteRecipe(completed.recipe, model, completed.epochs, completed.sizes)

    def check_training(self, training: TrainingConfig, model: ModelConfig) -> None:
        """Checks the keys of `training` that depend on the task.

        Raises:
            ConfigError: A key belongs to another task, or contradicts the model.
        """
        del model
        if training.r_drop:
            raise ConfigError("training.r_drop works with data.task='translation' only; leave it out")

    def extend_tokenizers(self, recipe: CompleteRecipe[Model], base_bundle: Bundle) -> Bundle:
        """Returns the pretrained model with tokenizers that have learned `tokenizer.added_pieces` from the corpus.

        Raises:
            ConfigError: The task or the tokenizers do not allow it.
        """
        del recipe, base_bundle
        raise ConfigError("tokenizer.added_pieces works with data.task='translation' only; leave it out")

    @abstractmethod
    def prepare(self, recipe: CompleteRecipe[Model], base_bundle: Bundle | None) -> TaskData:
        """Reads and tokenizes the data.

        Args:
            recipe: Completed recipe.
            base_bundle: Pretrained or checkpointed model of the run, whose tokenizers are reused.
        """


def set_vocab_sizes(
    config: Model, tokenizers: TokenizerPair, extra: int = 0, base_bundle: Bundle | None = None
) -> Model:
    """Sets vocabulary sizes and special token ids in a configuration, in keys that exist and default to None.

    Args:
        config: Model configuration of the recipe.
        tokenizers: Tokenizers of the run.
        extra: Number of ids beyond those of the tokenizer.
        base_bundle: Pretrained or checkpointed model of the run, whose vocabulary is not made smaller.
    """
    min_size = base_bundle.config.model_dump().get("vocab_size") or 0 if base_bundle else 0
    special_tokens = tokenizers.source.special_tokens
    sizes = {
        "src_vocab_size": tokenizers.source.vocab_size, "tgt_vocab_size": tokenizers.target.vocab_size,
        "vocab_size": max(tokenizers.source.vocab_size + extra, min_size),
        "bos_id": special_tokens.bos, "eos_id": special_tokens.eos,
        "pad_id": special_tokens.pad, "start_id": special_tokens.bos,
    }  # fmt: skip
    fields = type(config).model_fields
    return config.updated(
        **{key: value for key, value in sizes.items() if key in fields and fields[key].default is None}
    )


def known_labels(bundle: Bundle | None) -> tuple[str, ...]:
    """Returns the labels of the model that a run starts from; empty if it has none."""
    return bundle.config.labels if bundle and isinstance(bundle.config, LabellingConfig) else ()
