"""What a run trains a model to do: where examples come from, what is learned of them, and how that is scored."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from transformer.bundle import Bundle
from transformer.config import Config
from transformer.errors import ConfigError
from transformer.interfaces import Dataset
from transformer.models import family
from transformer.run.recipe import Defaults, Recipe, complete
from transformer.tokenizers.pair import TokenizerPair
from transformer.training.backend import Backend
from transformer.training.config import TrainingConfig
from transformer.training.validation import validation_loss


@dataclass(frozen=True)
class TaskData:
    """What a run learns from.

    Attributes:
        config: of the model, with what the data decides.
        text: its tokenizers; None where it reads no text.
        train: examples to learn from.
        validation: held-out examples.
        lines: the account of the data, for the reader.
        facts: the same as values of JSON, which the model keeps.
        notes: what the reader should know of how they came about.
        provenance: what else the model keeps.
    """

    config: Config
    text: TokenizerPair | None
    train: Dataset
    validation: Dataset
    lines: list[str]
    facts: dict[str, Any]
    notes: list[str] = field(default_factory=list[str])
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Scores:
    """Figures of a validation.

    Attributes:
        values: by name, among them `loss` and the task's own metric.
        signatures: how they were measured, where there are several ways.
        outputs: what the model wrote, if it wrote something.
    """

    values: dict[str, float]
    signatures: dict[str, str] = field(default_factory=dict[str, str])
    outputs: list[str] = field(default_factory=list[str])


class Task(ABC):
    """One kind of training. Made from the recipe's `data` section before anything is read.

    Attributes:
        sums: SHA-256 of every file that the run learns from or is judged by, by the key that names it.
        kinds: of families that can do it, see `Family.kind`.
        metrics: that may decide the best.
        scored: what losses are a mean over.
    """

    sums: Mapping[str, str]
    kinds: tuple[str, ...]
    metrics: tuple[str, ...] = ("loss",)
    scored: str = "tokens"

    @abstractmethod
    def size(self) -> int:
        """Training examples, or what else decides the defaults."""

    @abstractmethod
    def defaults(self, recipe: Recipe) -> Defaults:
        """What the task takes where the recipe leaves it open."""

    def complete(self, recipe: Recipe, steps_per_epoch: int | None = None, earlier: Recipe | None = None) -> Recipe:
        """The recipe with all that it leaves open, see `transformer.run.recipe.complete`.

        Raises:
            ConfigError: values do not fit together or are of another task, or the model is of a kind that cannot do it.
        """
        filled = complete(recipe, self.defaults(recipe), steps_per_epoch, earlier)
        assert filled.model is not None
        refuse_metric(filled.training.best_metric, self.metrics)
        if filled.training.r_drop:
            raise ConfigError("training.r_drop is of data.task='translation'; leave it out")
        name = filled.model.model_dump()["family"]
        if family(name).kind not in self.kinds:
            raise ConfigError(
                f"model.family={name!r} ({family(name).kind}) cannot do "
                f"data.task={recipe.data.model_dump()['task']!r}; choose one of kind {' or '.join(self.kinds)}"
            )
        return filled

    @abstractmethod
    def prepare(self, recipe: Recipe, known: Bundle | None) -> TaskData:
        """Reads the data.

        Args:
            recipe: completed.
            known: the model that the run begins or goes on with, whose tokenizers hold.
        """

    @abstractmethod
    def objective(self, model: nn.Module, training: TrainingConfig, material: TaskData) -> nn.Module:
        """The model with its loss."""

    def scores(self, model: nn.Module, training: TrainingConfig, material: TaskData, backend: Backend) -> Scores:
        """Figures of the model on the validation examples."""
        objective = self.objective(model, training.model_copy(update={"activation_checkpointing": False}), material)
        return Scores(validation_loss(objective, material.validation, training.budget_at_once, backend))

    def warm_up_validation(self, model: nn.Module, training: TrainingConfig, material: TaskData) -> None:
        """Does what of `scores` may take more memory than a batch of training does: of the loss alone nothing."""
        del model, training, material

    def kept(self, material: TaskData, outputs: list[str]) -> str:
        """The content of the run's `translations.jsonl`; empty where the model writes nothing."""
        del material, outputs
        return ""


def refuse_metric(metric: str, known: tuple[str, ...]) -> None:
    """Refuses a metric that the task does not measure.

    Raises:
        ConfigError: it is none of those that are known.
    """
    if metric not in known:
        raise ConfigError(f"training.best_metric={metric!r} is not measured for this task; choose {' or '.join(known)}")


def sized(config: Config, tokenizers: TokenizerPair, extra: int = 0, known: Bundle | None = None) -> Config:
    """The configuration with the vocabularies' sizes and ids, where it has keys for them that nothing is in by default.

    Args:
        config: of the recipe.
        tokenizers: of the run.
        extra: ids beyond those of the tokenizer.
        known: the model that the run begins or goes on with, whose vocabulary is not made smaller.
    """
    given = config.model_dump()
    least = known.config.model_dump().get("vocab_size") or 0 if known else 0
    special_tokens = tokenizers.source.special_tokens
    sizes = {
        "src_vocab_size": tokenizers.source.vocab_size, "tgt_vocab_size": tokenizers.target.vocab_size,
        "vocab_size": max(tokenizers.source.vocab_size + extra, least),
        "bos_id": special_tokens.bos, "eos_id": special_tokens.eos,
        "pad_id": special_tokens.pad, "start_id": special_tokens.bos,
    }  # fmt: skip
    fields = type(config).model_fields
    unset = {key: value for key, value in sizes.items() if key in fields and fields[key].default is None}
    return type(config).model_validate({**given, **unset})
