"""Base class of training tasks: their data, objective and validation scores."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from transformer.bundle import Bundle
from transformer.errors import ConfigError
from transformer.interfaces import Dataset
from transformer.models import family
from transformer.models.kinds import ModelConfig
from transformer.run.recipe import Recipe, TaskDefaults, complete
from transformer.tokenizers.pair import TokenizerPair
from transformer.training.backend import Backend
from transformer.training.config import TrainingConfig
from transformer.training.validation import validation_loss


@dataclass(frozen=True)
class TaskData:
    """Data of a run, and the settings that depend on it.

    Attributes:
        config: ModelConfiguration of the model, with the values that the data determines, such as vocabulary sizes.
        text: Tokenizers; None if the model does not read text.
        train: Training examples.
        validation: Held-out examples.
        rows: Titles and texts of a table that sums up the data.
        facts: Statistics of the data as JSON values, stored in the provenance of the model.
        notes: Notes on the preparation, to be logged.
        provenance: Further entries for the provenance of the model.
        fallback_shares: For each kind of text, the share of its tokens that stand for a part of a character or for
            unknown text.
    """

    config: ModelConfig
    text: TokenizerPair | None
    train: Dataset
    validation: Dataset
    rows: list[tuple[str, str]]
    facts: dict[str, Any]
    notes: list[str] = field(default_factory=list[str])
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])
    fallback_shares: dict[str, float] = field(default_factory=dict[str, float])


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


class Task(ABC):
    """A kind of training task, created from the recipe's `data` section before any data is read.

    Attributes:
        checksums: SHA-256 of the training and validation files, by recipe key.
        family_kinds: Kinds of model families that support the task, see `Family.kind`.
        metrics: Allowed values of `training.best_metric`.
        loss_unit: Plural noun for the elements over which the loss is averaged.
    """

    checksums: Mapping[str, str]
    family_kinds: tuple[str, ...]
    metrics: tuple[str, ...] = ("loss",)
    loss_unit: str = "tokens"

    @abstractmethod
    def size(self) -> int:
        """Returns the size of the training data on which the defaults depend, such as its number of examples."""

    @abstractmethod
    def defaults(self, recipe: Recipe) -> TaskDefaults:
        """Returns the defaults for keys that the recipe does not set."""

    def complete(self, recipe: Recipe, steps_per_epoch: int | None = None) -> Recipe:
        """Fills in the unset keys of a recipe, see `transformer.run.recipe.complete`.

        Raises:
            ConfigError: Values contradict each other or belong to another task, or the model family does not support
                this task.
        """
        completed = complete(recipe, self.defaults(recipe), steps_per_epoch)
        assert completed.model is not None
        check_metric(completed.training.best_metric, self.metrics)
        if completed.training.r_drop:
            raise ConfigError("training.r_drop works with data.task='translation' only; leave it out")
        name = completed.model.model_dump()["family"]
        if family(name).kind not in self.family_kinds:
            raise ConfigError(
                f"model.family={name!r} ({family(name).kind}) does not support "
                f"data.task={recipe.data.model_dump()['task']!r}; choose one of kind {' or '.join(self.family_kinds)}"
            )
        return completed

    @abstractmethod
    def prepare(self, recipe: Recipe, base_bundle: Bundle | None) -> TaskData:
        """Reads and tokenizes the data.

        Args:
            recipe: Completed recipe.
            base_bundle: Pretrained or checkpointed model of the run, whose tokenizers are reused.
        """

    @abstractmethod
    def objective(self, model: nn.Module, training: TrainingConfig, task_data: TaskData) -> nn.Module:
        """Wraps the model in the module that computes the training loss."""

    def scores(self, model: nn.Module, training: TrainingConfig, task_data: TaskData, backend: Backend) -> Scores:
        """Scores the model on the validation examples."""
        objective = self.objective(model, training.model_copy(update={"activation_checkpointing": False}), task_data)
        return Scores(validation_loss(objective, task_data.validation, training.budget_at_once, backend))

    def warm_up_validation(self, model: nn.Module, training: TrainingConfig, task_data: TaskData) -> None:
        """Runs the part of `scores` with the highest peak memory; nothing if only the loss is computed."""
        del model, training, task_data

    def translations_jsonl(self, task_data: TaskData, outputs: list[str]) -> str:
        """Returns the content of the run's `translations.jsonl`; empty if the model does not generate text."""
        del task_data, outputs
        return ""


def check_metric(metric: str, metrics: tuple[str, ...]) -> None:
    """Checks that a task computes a metric.

    Raises:
        ConfigError: `metric` is not one of `metrics`.
    """
    if metric not in metrics:
        raise ConfigError(
            f"training.best_metric={metric!r} is not measured for this task; choose {' or '.join(metrics)}"
        )


def set_vocab_sizes(
    config: ModelConfig, tokenizers: TokenizerPair, extra: int = 0, base_bundle: Bundle | None = None
) -> ModelConfig:
    """Sets vocabulary sizes and special token ids in a configuration, in keys that exist and default to None.

    Args:
        config: Model configuration of the recipe.
        tokenizers: Tokenizers of the run.
        extra: Number of ids beyond those of the tokenizer.
        base_bundle: Pretrained or checkpointed model of the run, whose vocabulary is not made smaller.
    """
    values = config.model_dump()
    min_size = base_bundle.config.model_dump().get("vocab_size") or 0 if base_bundle else 0
    special_tokens = tokenizers.source.special_tokens
    sizes = {
        "src_vocab_size": tokenizers.source.vocab_size, "tgt_vocab_size": tokenizers.target.vocab_size,
        "vocab_size": max(tokenizers.source.vocab_size + extra, min_size),
        "bos_id": special_tokens.bos, "eos_id": special_tokens.eos,
        "pad_id": special_tokens.pad, "start_id": special_tokens.bos,
    }  # fmt: skip
    fields = type(config).model_fields
    updates = {key: value for key, value in sizes.items() if key in fields and fields[key].default is None}
    return type(config).model_validate({**values, **updates})
