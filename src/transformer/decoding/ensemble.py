"""Several models that write one translation together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.errors import ConfigError
from transformer.interfaces import GenerativeModel, State


@dataclass(frozen=True)
class EnsembleState:
    """The states of all models; row b of each belongs to the same hypothesis."""

    states: tuple[State, ...]

    def select(self, rows: Int[Tensor, " R"]) -> "EnsembleState":
        """The given rows of every state."""
        return EnsembleState(tuple(state.select(rows) for state in self.states))

    def join(self, other: "EnsembleState") -> "EnsembleState":
        """The rows of both, model by model."""
        return EnsembleState(tuple(ours.join(theirs) for ours, theirs in zip(self.states, other.states, strict=True)))


class Ensemble:
    """Models over one vocabulary, whose predictions are averaged at every step.

    Args:
        models: in evaluation mode.
        average: "log_probability" multiplies the distributions (their geometric mean, normalized again): a token
            must please all. "probability" adds them (their arithmetic mean): one model suffices.

    Raises:
        ConfigError: there is no model, or another way of averaging.
    """

    def __init__(self, models: Sequence[GenerativeModel], average: str = "log_probability") -> None:
        if not models:
            raise ConfigError("an ensemble has no model; give one or more")
        if average not in ("log_probability", "probability"):
            raise ConfigError(f"average={average!r} is unknown; choose 'log_probability' or 'probability'")
        self.models = list(models)
        self.average = average

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> EnsembleState:
        """Every model reads the sources."""
        return EnsembleState(tuple(model.begin(src, src_mask, limit) for model in self.models))

    def step(self, tokens: Int[Tensor, " B"], state: EnsembleState) -> tuple[Float[Tensor, "B V"], EnsembleState]:
        """The logarithm of the mean distribution, up to a constant a row.

        Raises:
            ConfigError: the vocabularies differ in size.
        """
        steps: list[tuple[Tensor, Any]] = [
            model.step(tokens, own) for model, own in zip(self.models, state.states, strict=True)
        ]
        sizes = {logits.size(1) for logits, _ in steps}
        if len(sizes) > 1:
            raise ConfigError(f"vocabularies of {sorted(sizes)} tokens do not average; give models of one tokenizer")
        mean = averaged([logits.float().log_softmax(dim=-1) for logits, _ in steps], self.average)
        return mean, EnsembleState(tuple(own for _, own in steps))


def averaged(log_p: Sequence[Float[Tensor, "*rows V"]], average: str) -> Float[Tensor, "*rows V"]:
    """The logarithm of the mean of distributions, geometric or arithmetic, up to a constant a row; see `Ensemble`."""
    stacked = torch.stack(list(log_p))
    return stacked.mean(dim=0) if average == "log_probability" else stacked.logsumexp(dim=0)
