"""Searches among the few tokens that a sentence's translation is likely to hold, in place of the whole vocabulary."""

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
from transformer.kernels import MOST_RANKED, ListedMatrix, best_tokens
from transformer.tokenizers.special_tokens import EOS_ID, PAD_ID

Projection = Callable[[Tensor], Tensor]


class SupportsOutputSubset(GenerativeModel, Protocol):
    """A model that can compute the logits of a subset of the vocabulary.

    Its `step` equals `step_hidden` followed by `output_subset(None)`.
    """

    def step_hidden(self, tokens: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B D"], Any]:
        """As `step`, without the projection to the vocabulary."""
        ...

    def output_subset(self, ids: Int[Tensor, " C"] | None) -> Projection:
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

    def of(self, src: Int[Tensor, "N S"]) -> Bool[Tensor, "N V"]:
        """Which tokens each sentence may use."""
        may_use = torch.zeros(len(src), self.vocab_size, dtype=torch.bool, device=src.device)
        goes_along = self.by_token.to(src.device)[src].masked_fill(src[:, :, None] == PAD_ID, EOS_ID)  # N S K
        may_use.scatter_(1, goes_along.flatten(1), True)
        may_use[:, self.always.to(src.device)] = True
        return may_use


@dataclass(frozen=True)
class ShortlistBatch:
    """The tokens that each of some sentences may use.

    Attributes:
        tokens: of all lists, one list after another, each in ascending order.
        starts: where each list begins in `tokens`, and where the last one ends.
        model: whose tokens they are.
        vocab_size: of the target.
    """

    tokens: Int[Tensor, " T"]
    starts: Int[Tensor, " L"]
    model: SupportsOutputSubset
    vocab_size: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of each list."""
        return self.starts.diff().tolist()

    def join(self, other: "ShortlistBatch", numbers: list[int]) -> "ShortlistBatch":
        """Some of the lists of both, the other's being counted after these."""
        each = [*self.tokens.split(self.sizes), *other.tokens.split(other.sizes)]
        sizes = torch.tensor([len(each[number]) for number in numbers], device=self.tokens.device)
        starts = F.pad(sizes.cumsum(dim=0), (1, 0))
        return ShortlistBatch(torch.cat([each[number] for number in numbers]), starts, self.model, self.vocab_size)

    @cached_property
    def ids(self) -> Int[Tensor, " C"]:
        """The tokens of any list, in ascending order."""
        return self.tokens.unique()

    @cached_property
    def projection(self) -> Projection:
        """To `ids`."""
        return self.model.output_subset(self.ids)

    @cached_property
    def forbidden(self) -> Bool[Tensor, "N C"]:
        """Which of `ids` each list lacks."""
        lists = torch.arange(len(self), device=self.tokens.device).repeat_interleave(self.starts.diff())
        forbidden = torch.ones(len(self), len(self.ids), dtype=torch.bool, device=self.tokens.device)
        forbidden[lists, torch.searchsorted(self.ids, self.tokens)] = False
        return forbidden


@dataclass(frozen=True)
class ShortlistState:
    """The state of a model that chooses among few tokens.

    Attributes:
        inner: of the model.
        lists: of the sentences, also of those that left since others joined them.
        list_of: each row.
    """

    inner: State
    lists: ShortlistBatch
    list_of: Int[Tensor, " B"]

    def select(self, rows: Int[Tensor, " R"]) -> "ShortlistState":
        """The given rows; the lists stay."""
        return replace(self, inner=self.inner.select(rows), list_of=self.list_of[rows])

    def join(self, other: "ShortlistState") -> "ShortlistState":
        """The rows of both, and their lists."""
        kept, list_of = torch.cat([self.list_of, other.list_of + len(self.lists)]).unique(return_inverse=True)
        lists = self.lists.join(other.lists, kept.tolist())
        return ShortlistState(self.inner.join(other.inner), lists, list_of)


class ShortlistModel:
    """A model whose logits are those of a shortlist; `shortlisted` tells which they are.

    A sentence has tokens of its own: its translation does not depend on the sentences beside it, and its score at most
    in the last bits. Scores are those of the distribution among its tokens, and so a little higher than the model's.

    Args:
        model: in evaluation mode.
        shortlist: over its vocabularies.
        ranks: whether to keep the weights that are ranked list by list, which takes the projection's memory once more;
            without them, as in an ensemble, a step computes the tokens of all sentences.

    Raises:
        ConfigError: it names tokens beyond its vocabulary or, where lists are ranked, beyond the model's.

    Source: Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation", Sec. 3.2.1.
    """

    def __init__(self, model: SupportsOutputSubset, shortlist: Shortlist, *, ranks: bool = True) -> None:
        self.model, self.shortlist = model, shortlist
        self.listed = ListedMatrix.of(model.output_subset(None)) if ranks else None
        most = shortlist.vocab_size if self.listed is None else min(shortlist.vocab_size, self.listed.columns)
        tokens = torch.cat([shortlist.always, shortlist.by_token.flatten()])
        if tokens.min() < 0 or tokens.max() >= most or shortlist.vocab_size != most:
            raise ConfigError(
                f"a shortlist of {shortlist.vocab_size} tokens names {int(tokens.max())}, of a model that has {most}"
            )

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> ShortlistState:
        """As `GenerativeModel.begin`."""
        may_use = self.shortlist.of(src)
        starts = F.pad(may_use.sum(dim=1).cumsum(dim=0), (1, 0))
        lists = ShortlistBatch(may_use.nonzero()[:, 1].contiguous(), starts, self.model, self.shortlist.vocab_size)
        numbers = torch.arange(len(src), device=src.device)
        return ShortlistState(self.model.begin(src, src_mask, limit), lists, numbers)

    def step(self, tokens: Int[Tensor, " B"], state: ShortlistState) -> tuple[Float[Tensor, "B C"], ShortlistState]:
        """The logits of the tokens of any list; -inf for those that the row's own lacks."""
        x, inner = self.model.step_hidden(tokens, state.inner)
        logits = state.lists.projection(x).masked_fill_(state.lists.forbidden[state.list_of], -torch.inf)
        return logits, replace(state, inner=inner)

    def step_best(
        self, tokens: Int[Tensor, "N W"], state: ShortlistState, k: int, never: Bool[Tensor, " V"]
    ) -> tuple[Float[Tensor, "N W k"], Int[Tensor, "N W k"], ShortlistState]:
        """The k most probable tokens of each row, best first, their log-probabilities, and the state after the step.

        Args:
            tokens: of each sentence's W rows, which stand together.
            state: before.
            k: how many; what a list has too few of has the log-probability -inf, or is left out at the end of all rows.
            never: tokens that are left out.
        """
        if self.listed is None or k > MOST_RANKED:
            logits, state = self.step(tokens.flatten(), state)
            log_p, best = best_listed(logits, state.lists.ids, k, never)
            return log_p.unflatten(0, tokens.shape), best.unflatten(0, tokens.shape), state
        x, inner = self.model.step_hidden(tokens.flatten(), state.inner)
        lists, list_of = state.lists, state.list_of[:: tokens.size(1)]
        log_p, best = self.listed.best(x.unflatten(0, tokens.shape), lists.tokens, lists.starts, list_of, k, never)
        return log_p, best, replace(state, inner=inner)


def best_listed(
    logits: Float[Tensor, "B C"], ids: Int[Tensor, " C"], k: int, never: Bool[Tensor, " V"]
) -> tuple[Float[Tensor, "B k"], Int[Tensor, "B k"]]:
    """As `best_tokens`, of logits of some tokens of a vocabulary; as many as there are, where they are fewer than k."""
    log_p, places = best_tokens(logits, min(k, len(ids)), never[ids])
    return log_p, ids[places]


def shortlisted(state: State) -> ShortlistBatch | None:
    """Which tokens a model's logits are of; None where they are of the whole vocabulary."""
    if isinstance(state, EnsembleState):
        return shortlisted(state.states[0])
    return state.lists if isinstance(state, ShortlistState) else None
