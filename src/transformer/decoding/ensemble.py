"""Ensembles: several models that generate one output together."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.incremental_state import join_states
from transformer.decoding.search_model import SearchModel, as_search_model
from transformer.errors import ConfigError
from transformer.interfaces import GenerativeModel, State


@dataclass(frozen=True)
class EnsembleState:
    """The states of all models; row b of each belongs to the same hypothesis."""

    states: tuple[State, ...]

    def select(self, rows: Int[Tensor, " R"]) -> "EnsembleState":
        """Selects the same rows of every state."""
        return EnsembleState(tuple(state.select(rows) for state in self.states))

    def join(self, other: "EnsembleState") -> "EnsembleState":
        """Concatenates the rows of both, model by model."""
        return EnsembleState(
            tuple(join_states(state, other_state) for state, other_state in zip(self.states, other.states, strict=True))
        )


class Ensemble(SearchModel):
    """Models over one vocabulary whose predictions are averaged at every step.

    Args:
        models: Models in evaluation mode.
        average: "log_probability" multiplies the distributions (their renormalized geometric mean), so that a token
            must be probable in all models. "probability" adds them (their arithmetic mean), so that one model suffices.

    Raises:
        ConfigError: `models` is empty or `average` is unknown.
    """

    def __init__(self, models: Sequence[GenerativeModel], average: str = "log_probability") -> None:
        if not models:
            raise ConfigError("an ensemble has no model; give one or more")
        if average not in ("log_probability", "probability"):
            raise ConfigError(f"average={average!r} is unknown; choose 'log_probability' or 'probability'")
        self.models = [as_search_model(model) for model in models]
        self.average = average

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> EnsembleState:
        """Encodes the sources with every model."""
        return EnsembleState(tuple(model.begin(src, src_mask, limit) for model in self.models))

    def step(self, tokens: Int[Tensor, " B"], state: EnsembleState) -> tuple[Float[Tensor, "B V"], EnsembleState]:
        """Returns the logarithm of the mean distribution, up to a constant per row, and the next state.

        Raises:
            ConfigError: The vocabularies of the models differ in size.
        """
        steps = [model.step(tokens, model_state) for model, model_state in zip(self.models, state.states, strict=True)]
        sizes = {logits.size(1) for logits, _ in steps}
        if len(sizes) > 1:
            raise ConfigError(f"vocabularies of {sorted(sizes)} tokens do not average; give models of one tokenizer")
        mean = average_log_p([logits.float().log_softmax(dim=-1) for logits, _ in steps], self.average)
        return mean, EnsembleState(tuple(model_state for _, model_state in steps))


def average_log_p(log_p: Sequence[Float[Tensor, "*rows V"]], average: str) -> Float[Tensor, "*rows V"]:
    """Returns the logarithm of the geometric or arithmetic mean of distributions, up to a constant per row.

    Args:
        log_p: Log-probabilities of each model.
        average: Kind of mean, as in `Ensemble`.
    """
    stacked = torch.stack(list(log_p))
    return stacked.mean(dim=0) if average == "log_probability" else stacked.logsumexp(dim=0)
