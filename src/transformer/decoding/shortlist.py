"""Searches among the few tokens that a sentence's translation is likely to hold, in place of the whole vocabulary."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.ensemble import EnsembleState
from transformer.protocols import Generates, State
from transformer.text.control import EOS_ID, PAD_ID

Projection = Callable[[Tensor], Tensor]


class Narrows(Generates, Protocol):
    """A model that can compute the logits of some tokens alone; its `step` is `narrowed(None)` after `step_hidden`."""

    def step_hidden(self, tokens: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B D"], Any]:
        """As `step`, without the projection to the vocabulary."""
        ...

    def narrowed(self, ids: Int[Tensor, " C"] | None) -> Projection:
        """The projection to some tokens; to all if none are given."""
        ...


@dataclass(frozen=True)
class Shortlist:
    """The tokens that a translation may hold, given the tokens of its source.

    Attributes:
        always: whatever the source is, EOS among them, in ascending order.
        by_token: those that go with each source token, filled up with EOS.
        vocab_size: of the target.
    """

    always: Int[Tensor, " A"]
    by_token: Int[Tensor, "S K"]
    vocab_size: int

    def of(self, src: Int[Tensor, "N S"]) -> tuple[Int[Tensor, " C"], Bool[Tensor, "N C"]]:
        """The tokens of any of the sentences, in ascending order, and which of them each sentence may use."""
        may_use = torch.zeros(len(src), self.vocab_size, dtype=torch.bool, device=src.device)
        goes_along = self.by_token.to(src.device)[src].masked_fill(src[:, :, None] == PAD_ID, EOS_ID)  # N S K
        may_use.scatter_(1, goes_along.flatten(1), True)
        may_use[:, self.always.to(src.device)] = True
        ids = may_use.any(dim=0).nonzero()[:, 0]
        return ids, may_use[:, ids]


@dataclass(frozen=True)
class ShortlistedState:
    """The state of a model that chooses among few tokens.

    Attributes:
        inner: of the model.
        ids: the tokens, in ascending order.
        vocab_size: of the target.
        forbidden: the tokens of others, which each row must not use.
        model: the model.
        projection: to `ids`.
    """

    inner: State
    ids: Int[Tensor, " C"]
    vocab_size: int
    forbidden: Bool[Tensor, "B C"]
    model: Narrows
    projection: Projection

    def select(self, rows: Int[Tensor, " R"]) -> "ShortlistedState":
        """The given rows; the tokens stay."""
        return replace(self, inner=self.inner.select(rows), forbidden=self.forbidden[rows])

    def join(self, other: "ShortlistedState") -> "ShortlistedState":
        """The rows of both, with the tokens of both."""
        ids = torch.cat([self.ids, other.ids]).unique()
        forbidden = torch.cat([_forbidden_among(ids, each) for each in (self, other)])
        inner = self.inner.join(other.inner)
        return ShortlistedState(inner, ids, self.vocab_size, forbidden, self.model, self.model.narrowed(ids))


def _forbidden_among(ids: Int[Tensor, " C"], state: ShortlistedState) -> Bool[Tensor, "B C"]:
    """What is forbidden to each row of a state among more tokens than its own: all that it did not have, too."""
    forbidden = torch.ones(len(state.forbidden), len(ids), dtype=torch.bool, device=ids.device)
    forbidden[:, torch.searchsorted(ids, state.ids)] = state.forbidden
    return forbidden


class Shortlisted:
    """A model whose logits are those of a shortlist; `shortlisted` tells which they are.

    A sentence has tokens of its own: its translation and score do not depend on the sentences beside it. Scores are
    those of the distribution among them, and so a little higher than the model's.

    Args:
        model: in evaluation mode.
        shortlist: over its vocabularies.

    Source: Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation", Sec. 3.2.1.
    """

    def __init__(self, model: Narrows, shortlist: Shortlist) -> None:
        self.model, self.shortlist = model, shortlist

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> ShortlistedState:
        """As `Generates.begin`."""
        ids, may_use = self.shortlist.of(src)
        inner, vocab_size = self.model.begin(src, src_mask, limit), self.shortlist.vocab_size
        return ShortlistedState(inner, ids, vocab_size, ~may_use, self.model, self.model.narrowed(ids))

    def step(self, tokens: Int[Tensor, " B"], state: ShortlistedState) -> tuple[Float[Tensor, "B C"], ShortlistedState]:
        """The logits of the listed tokens; -inf for those of other sentences alone."""
        x, inner = self.model.step_hidden(tokens, state.inner)
        return state.projection(x).masked_fill_(state.forbidden, -torch.inf), replace(state, inner=inner)


def shortlisted(state: State) -> ShortlistedState | None:
    """Which tokens a model's logits are of; None where they are of the whole vocabulary."""
    if isinstance(state, EnsembleState):
        return shortlisted(state.states[0])
    return state if isinstance(state, ShortlistedState) else None
