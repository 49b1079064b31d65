"""Models as the search sees them: each answers with the most probable next tokens."""

from abc import ABC, abstractmethod
from copy import copy
from functools import lru_cache
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.decoding.candidates import TopK
from transformer.interfaces import GenerativeModel, State
from transformer.kernels import PackedLinear, best_tokens


class SearchModel(ABC):
    """A model that answers with the most probable next tokens, or with all logits if they are to be processed."""

    @abstractmethod
    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> State:
        """Implements `GenerativeModel.begin`."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B V"], State]:
        """Implements `GenerativeModel.step`."""

    def top_k(self, tokens: Int[Tensor, "N W"], state: Any, k: int, never: tuple[int, ...]) -> tuple[TopK, State]:
        """Appends one token per hypothesis; returns the k most probable next tokens of each, and the next state.

        Args:
            tokens: Last token of each hypothesis.
            state: State before the step.
            k: Number of tokens per hypothesis. If there are fewer, the others have the log-probability -inf or are
                left out.
            never: Tokens that are excluded.
        """
        logits, state = self.step(tokens.flatten(), state)
        size = logits.size(1)
        best = best_tokens(logits, min(k, size), token_mask(never, size, logits.device))
        return TopK.of_raw_logits(*(x.unflatten(0, tokens.shape) for x in best)), state


class SingleModel(SearchModel):
    """A single model.

    If its projection to the vocabulary is packed, `top_k` ranks while projecting, so that the logits of the whole
    vocabulary never exist in memory.

    Args:
        model: Model in evaluation mode, whose blocks must not be replaced afterwards.

    Attributes:
        hidden_model: The model without its projection: its steps return hidden states.
        projection: Linear layer from hidden states to logits; None if the model has no `projection_layer`.
    """

    def __init__(self, model: GenerativeModel) -> None:
        self.model = model
        self.hidden_model = without_projection(model)
        layer = getattr(model, "projection_layer", None)
        self.projection: nn.Linear | PackedLinear | None = getattr(layer, "proj", None)

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> State:
        """Implements `GenerativeModel.begin`."""
        return self.model.begin(src, src_mask, limit)

    def step(self, tokens: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B V"], State]:
        """Implements `GenerativeModel.step`."""
        return self.model.step(tokens, state)

    def top_k(self, tokens: Int[Tensor, "N W"], state: Any, k: int, never: tuple[int, ...]) -> tuple[TopK, State]:
        """Implements `SearchModel.top_k`."""
        if not isinstance(self.projection, PackedLinear):
            return super().top_k(tokens, state, k, never)
        x, state = self.hidden_model.step(tokens.flatten(), state)
        size = self.projection.columns
        best = self.projection.top_k(x, min(k, size), token_mask(never, size, x.device))
        return TopK.of_raw_logits(*(x.unflatten(0, tokens.shape) for x in best)), state


def as_search_model(model: "GenerativeModel | SearchModel") -> SearchModel:
    """Returns a `SearchModel` itself, and wraps any other model."""
    return model if isinstance(model, SearchModel) else SingleModel(model)


def without_projection(model: GenerativeModel) -> GenerativeModel:
    """Returns a copy that shares all parameters, but whose steps return hidden states instead of logits."""
    if not isinstance(model, nn.Module) or not hasattr(model, "projection_layer"):
        return model
    hidden_model = copy(model)
    vars(hidden_model)["_modules"] = dict(vars(model)["_modules"])  # the copy shares this dictionary otherwise
    hidden_model.projection_layer = nn.Identity()
    return cast(GenerativeModel, hidden_model)


@lru_cache(maxsize=8)
def token_mask(tokens: tuple[int, ...], vocab_size: int, device: torch.device) -> Bool[Tensor, " V"]:
    """Returns a mask over the vocabulary that is True for some tokens."""
    return torch.zeros(vocab_size, dtype=torch.bool, device=device).index_fill_(
        0, torch.tensor(tokens, dtype=torch.long, device=device), True
    )
