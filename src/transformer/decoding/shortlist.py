"""Vocabulary shortlists: a search among the few tokens that the translation of a sentence is likely to contain.

Each sentence has its own list, so that its translation does not depend on the other sentences of a batch. Marian calls
the same technique a lexical shortlist, CTranslate2 a vocabulary map.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.ensemble import EnsembleState
from transformer.errors import ConfigError
from transformer.interfaces import GenerativeModel, State
from transformer.kernels import MAX_TOP_K, ShortlistProjection, best_tokens
from transformer.tokenizers.special_tokens import EOS_ID, PAD_ID

Projection = Callable[[Tensor], Tensor]


class SupportsOutputSubset(GenerativeModel, Protocol):
    """A model that can compute the logits of a subset of the vocabulary.

    Its `step` equals `step_hidden` followed by `output_subset(None)`.
    """

    def step_hidden(self, tokens: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B D"], Any]:
        """Same as `step`, but without the projection to the vocabulary."""
        ...

    def output_subset(self, ids: Int[Tensor, " C"] | None) -> Projection:
        """Returns the projection to some tokens, or to all tokens if `ids` is None."""
        ...


@dataclass(frozen=True)
class Shortlist:
    """The tokens that a translation may contain, given the tokens of its source.

    Attributes:
        always: Tokens that every translation may contain, EOS among them, in ascending order.
        by_token: Tokens allowed by each source token, padded with EOS.
        vocab_size: Size of the target vocabulary.
    """

    always: Int[Tensor, " A"]
    by_token: Int[Tensor, "S K"]
    vocab_size: int

    def of(self, src: Int[Tensor, "N S"]) -> Bool[Tensor, "N V"]:
        """Returns a mask that is True for the tokens that each sentence may use."""
        allowed = torch.zeros(len(src), self.vocab_size, dtype=torch.bool, device=src.device)
        tokens = self.by_token.to(src.device)[src].masked_fill(src[:, :, None] == PAD_ID, EOS_ID)  # N S K
        allowed.scatter_(1, tokens.flatten(1), True)
        allowed[:, self.always.to(src.device)] = True
        return allowed


@dataclass(frozen=True)
class ShortlistBatch:
    """The shortlists of several sentences.

    Attributes:
        tokens: Concatenated lists, each in ascending order.
        starts: Start of each list in `tokens`, followed by the end of the last one.
        model: Model whose tokens they are.
        vocab_size: Size of the target vocabulary.
    """

    tokens: Int[Tensor, " T"]
    starts: Int[Tensor, " L"]
    model: SupportsOutputSubset
    vocab_size: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> list[int]:
        """The number of tokens in each list."""
        return self.starts.diff().tolist()

    def join(self, other: "ShortlistBatch", indices: list[int]) -> "ShortlistBatch":
        """Selects lists of both batches by index, where the indices of `other` continue those of this batch."""
        lists = [*self.tokens.split(self.sizes), *other.tokens.split(other.sizes)]
        sizes = torch.tensor([len(lists[index]) for index in indices], device=self.tokens.device)
        starts = F.pad(sizes.cumsum(dim=0), (1, 0))
        return ShortlistBatch(torch.cat([lists[index] for index in indices]), starts, self.model, self.vocab_size)

    @cached_property
    def ids(self) -> Int[Tensor, " C"]:
        """The union of all lists, in ascending order."""
        return self.tokens.unique()

    @cached_property
    def projection(self) -> Projection:
        """The output projection to `ids`."""
        return self.model.output_subset(self.ids)

    @cached_property
    def forbidden(self) -> Bool[Tensor, "N C"]:
        """A mask that is True for the tokens of `ids` that each list lacks."""
        lists = torch.arange(len(self), device=self.tokens.device).repeat_interleave(self.starts.diff())
        forbidden = torch.ones(len(self), len(self.ids), dtype=torch.bool, device=self.tokens.device)
        forbidden[lists, torch.searchsorted(self.ids, self.tokens)] = False
        return forbidden


@dataclass(frozen=True)
class ShortlistState:
    """The state of a `ShortlistModel`.

    Attributes:
        inner: State of the underlying model.
        lists: Shortlists of the sentences; those of dropped sentences remain until the next `join`.
        list_of: Index of each row's list.
    """

    inner: State
    lists: ShortlistBatch
    list_of: Int[Tensor, " B"]

    def select(self, rows: Int[Tensor, " R"]) -> "ShortlistState":
        """Selects rows; all lists are kept."""
        return replace(self, inner=self.inner.select(rows), list_of=self.list_of[rows])

    def join(self, other: "ShortlistState") -> "ShortlistState":
        """Concatenates the rows of both, and keeps the lists that they use."""
        used, list_of = torch.cat([self.list_of, other.list_of + len(self.lists)]).unique(return_inverse=True)
        lists = self.lists.join(other.lists, used.tolist())
        return ShortlistState(self.inner.join(other.inner), lists, list_of)


class ShortlistModel:
    """A model whose logits are those of a shortlist; `active_shortlist` returns the tokens that they belong to.

    Each sentence has its own tokens: its translation does not depend on the other sentences of the batch, and its score
    only in the last bits. Scores are those of the distribution over the shortlist, and thus slightly higher than the
    model's.

    Args:
        model: Model in evaluation mode.
        shortlist: Shortlist of the model's vocabularies.
        fused: Whether to use a kernel that computes the best tokens of each list at once, which needs a copy of the
            output weights. Otherwise, as in an ensemble, a step computes the tokens of all sentences for each sentence.

    Raises:
        ConfigError: The shortlist contains tokens beyond its vocabulary or, if `fused`, beyond the model's.

    Source: Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation", Sec. 3.2.1.
    """

    def __init__(self, model: SupportsOutputSubset, shortlist: Shortlist, *, fused: bool = True) -> None:
        self.model, self.shortlist = model, shortlist
        self.output_weights = ShortlistProjection.from_projection(model.output_subset(None)) if fused else None
        size = (
            shortlist.vocab_size
            if self.output_weights is None
            else min(shortlist.vocab_size, self.output_weights.columns)
        )
        tokens = torch.cat([shortlist.always, shortlist.by_token.flatten()])
        if tokens.min() < 0 or tokens.max() >= size or shortlist.vocab_size != size:
            raise ConfigError(
                f"a shortlist over {shortlist.vocab_size} tokens contains token {int(tokens.max())}, but the model has"
                f" {size} tokens; make a shortlist with this model's tokenizers"
            )

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> ShortlistState:
        """Implements `GenerativeModel.begin`."""
        allowed = self.shortlist.of(src)
        starts = F.pad(allowed.sum(dim=1).cumsum(dim=0), (1, 0))
        lists = ShortlistBatch(allowed.nonzero()[:, 1].contiguous(), starts, self.model, self.shortlist.vocab_size)
        list_of = torch.arange(len(src), device=src.device)
        return ShortlistState(self.model.begin(src, src_mask, limit), lists, list_of)

    def step(self, tokens: Int[Tensor, " B"], state: ShortlistState) -> tuple[Float[Tensor, "B C"], ShortlistState]:
        """Returns the logits of the union of all lists, with -inf for tokens that the row's own list lacks."""
        x, inner = self.model.step_hidden(tokens, state.inner)
        logits = state.lists.projection(x).masked_fill_(state.lists.forbidden[state.list_of], -torch.inf)
        return logits, replace(state, inner=inner)

    def step_top_k(
        self, tokens: Int[Tensor, "N W"], state: ShortlistState, k: int, never: Bool[Tensor, " V"]
    ) -> tuple[Float[Tensor, "N W k"], Int[Tensor, "N W k"], ShortlistState]:
        """Returns the log-probabilities and ids of the k most probable tokens of each row, and the next state.

        Args:
            tokens: Last tokens of each sentence's W consecutive rows.
            state: State before the step.
            k: Number of tokens per row, best first. If a list has fewer tokens, the others have the log-probability
                -inf, or are left out at the end of all rows.
            never: Mask that is True for tokens that are never generated.
        """
        if self.output_weights is None or k > MAX_TOP_K:
            logits, state = self.step(tokens.flatten(), state)
            log_p, best = best_shortlisted(logits, state.lists.ids, k, never)
            return log_p.unflatten(0, tokens.shape), best.unflatten(0, tokens.shape), state
        x, inner = self.model.step_hidden(tokens.flatten(), state.inner)
        lists, list_of = state.lists, state.list_of[:: tokens.size(1)]
        x = x.unflatten(0, tokens.shape)
        log_p, best = self.output_weights.top_k(x, lists.tokens, lists.starts, list_of, k, never)
        return log_p, best, replace(state, inner=inner)


def best_shortlisted(
    logits: Float[Tensor, "B C"], ids: Int[Tensor, " C"], k: int, never: Bool[Tensor, " V"]
) -> tuple[Float[Tensor, "B k"], Int[Tensor, "B k"]]:
    """Same as `best_tokens`, but for the logits of the tokens `ids`; returns fewer than k if there are fewer."""
    log_p, indices = best_tokens(logits, min(k, len(ids)), never[ids])
    return log_p, ids[indices]


def active_shortlist(state: State) -> ShortlistBatch | None:
    """Returns the shortlists that a model's logits are limited to; None if they cover the whole vocabulary."""
    if isinstance(state, EnsembleState):
        return active_shortlist(state.states[0])
    return state.lists if isinstance(state, ShortlistState) else None
