"""Starts of a run from a new model, a pretrained model or a checkpoint, which all have the same form."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from transformer.bundle import Bundle
from transformer.errors import ConfigError
from transformer.models.kinds import ModelConfig
from transformer.run.defaults import CompleteRecipe
from transformer.run.recipe import Recipe
from transformer.run.task import Task
from transformer.tokenizers.pair import TokenizerPair
from transformer.training.monitoring.progress import Progress

OPTIMIZER = "optimizer"
"""Name of the optimizer state in a checkpoint, also accepted by `--allow-changed`."""

BPE_DROPOUT = "tokenizer.dropout"
"""The only key of the tokenizer that may change, since it changes no token."""

SCRIPT = "script"
"""Name for `--allow-changed` of a script that the tokenizer of a pretrained model hardly knows."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Start of a run: this class for a new model, a subclass for a pretrained model or a checkpoint.

    Attributes:
        recipe: Recipe without unset keys, except for those that depend on the tokenized data or the device.
        bundle: Pretrained or checkpointed model, whose tokenizers are reused; None for a new model.
        progress: Progress of the run so far.
        origin: Provenance entry of the pretrained model; empty if the run does not fine-tune one.
        notes: Notes and warnings, to be logged.
    """

    recipe: CompleteRecipe[ModelConfig]
    bundle: Bundle | None
    progress: Progress = field(default_factory=Progress)
    origin: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: list[str] = field(default_factory=list[str])

    @property
    def task_bundle(self) -> Bundle | None:
        """The bundle whose tokenizers encode the data; they read special tokens if `data.special_tokens` is set.

        Raises:
            ConfigError: The recipe sets it, but the tokenizers have no names of special tokens.
        """
        if not self.recipe.recipe.data.special_tokens:
            return self.bundle
        if self.bundle is None:
            raise ConfigError("data.special_tokens needs a published model, whose tokens have names; give --from MODEL")
        return replace(self.bundle, text=self.bundle.tokenizers.reading_special_tokens())

    def load_weights(self, model: nn.Module, config: ModelConfig, text: TokenizerPair | None) -> list[str]:
        """Loads the weights of `bundle` into the new model of the run.

        Args:
            model: Model with its initial parameters.
            config: Configuration of the model.
            text: Tokenizers of the run.

        Returns:
            Notes to be logged.
        """
        del model, config, text
        return []

    def restore_optimizer(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Loads the optimizer state of the checkpoint, on every rank its own part."""
        del model, optimizer


def new_start(recipe: Recipe, task: Task[Any], allow_changed: Collection[str] = ()) -> Start:
    """Returns the start of a run with a new model.

    Args:
        recipe: Recipe as the user wrote it.
        task: Task of the recipe.
        allow_changed: Keys that the user allows to differ from those of an earlier run.

    Raises:
        ConfigError: Keys of the recipe contradict each other, or `allow_changed` names an unknown key.
    """
    return Start(recipe=complete_recipe(recipe, task, allow_changed), bundle=None)


def complete_recipe(recipe: Recipe, task: Task[Any], allow_changed: Collection[str]) -> CompleteRecipe[ModelConfig]:
    """Fills in the unset keys of a recipe, then checks the keys of `--allow-changed`.

    A key of the recipe may change, except those of the tokenizer, which a run keeps; its dropout may.

    Raises:
        ConfigError: Keys of the recipe contradict each other, or an allowed key is unknown or belongs to the tokenizer.
    """
    completed = task.complete(recipe)
    known = {f"{section}.{key}" for section, keys in completed.recipe.model_dump().items() for key in keys}
    known |= {OPTIMIZER, SCRIPT, *task.checksums}
    for key in allow_changed:
        if key not in known or (key.startswith("tokenizer.") and key != BPE_DROPOUT):
            raise ConfigError(
                f"--allow-changed {key!r} is not a key that can change in a run; name a key of the recipe, such as "
                "training.learning_rate, but none of the tokenizer"
            )
    return completed
