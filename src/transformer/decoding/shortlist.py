"""Vocabulary (lexical) shortlists: a search among the few tokens that the translation of a sentence probably contains.

Each sentence has its own list, so that its translation does not depend on the other sentences of a batch. Marian calls
the same technique a lexical shortlist, CTranslate2 a vocabulary map.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.decoding.candidates import TopK
from transformer.decoding.incremental_state import join_states
from transformer.decoding.search_model import SearchModel, SingleModel, token_mask
from transformer.errors import ConfigError
from transformer.interfaces import GenerativeModel, State
from transformer.kernels import PackedLinear, best_tokens
from transformer.tokenizers.special_tokens import EOS_ID, PAD_ID


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

    def mask(self, src: Int[Tensor, "N S"]) -> Bool[Tensor, "N V"]:
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
        projection: Linear layer to the logits of the whole vocabulary.
        vocab_size: Size of the target vocabulary.
    """

    tokens: Int[Tensor, " T"]
    starts: Int[Tensor, " L"]
    projection: nn.Linear | PackedLinear
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
        return replace(self, tokens=torch.cat([lists[index] for index in indices]), starts=starts)

    @cached_property
    def ids(self) -> Int[Tensor, " C"]:
        """The union of all lists, in ascending order."""
        return self.tokens.unique()

    @cached_property
    def projection_to_ids(self) -> Callable[[Tensor], Tensor]:
        """The projection to the logits of `ids`."""
        return select_outputs(self.projection, self.ids)

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
        return ShortlistState(join_states(self.inner, other.inner), lists, list_of)


class ShortlistModel(SearchModel):
    """A model that generates the tokens of a shortlist; the logits of all others are -inf.

    Each sentence has its own tokens: its translation does not depend on the other sentences of the batch, and its score
    only in the last bits. Scores are those of the distribution over the shortlist, and thus slightly higher than the
    model's.

    Args:
        model: Model in evaluation mode, with a `projection_layer`.
        shortlist: Shortlist of the model's vocabularies.

    Raises:
        ConfigError: The shortlist contains tokens beyond its vocabulary or beyond the model's, or the
            model has no `projection_layer`.

    Source: Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation".
    """

    def __init__(self, model: GenerativeModel | SingleModel, shortlist: Shortlist) -> None:
        self.model = model if isinstance(model, SingleModel) else SingleModel(model)
        self.shortlist = shortlist
        if (projection := self.model.projection) is None:
            raise ConfigError(f"{type(model).__name__} has no projection_layer; give each of its models a shortlist")
        self.projection = projection
        size = min(shortlist.vocab_size, n_outputs(projection))
        tokens = torch.cat([shortlist.always, shortlist.by_token.flatten()])
        if tokens.min() < 0 or tokens.max() >= size or shortlist.vocab_size != size:
            raise ConfigError(
                f"a shortlist over {shortlist.vocab_size} tokens contains token {int(tokens.max())}, but the model has"
                f" {size} tokens; make a shortlist with this model's tokenizers"
            )

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> ShortlistState:
        """Implements `GenerativeModel.begin`."""
        allowed = self.shortlist.mask(src)
        starts = F.pad(allowed.sum(dim=1).cumsum(dim=0), (1, 0))
        tokens = allowed.nonzero()[:, 1].contiguous()
        lists = ShortlistBatch(tokens, starts, self.projection, self.shortlist.vocab_size)
        list_of = torch.arange(len(src), device=src.device)
        return ShortlistState(self.model.begin(src, src_mask, limit), lists, list_of)

    def step(self, tokens: Int[Tensor, " B"], state: ShortlistState) -> tuple[Float[Tensor, "B V"], ShortlistState]:
        """Implements `GenerativeModel.step`; the logits are -inf for tokens that the row's own list lacks."""
        logits, state = self._listed_logits(tokens, state)
        size, ids = state.lists.vocab_size, state.lists.ids
        return logits.new_full((len(logits), size), -torch.inf).index_copy_(1, ids, logits), state

    def top_k(
        self, tokens: Int[Tensor, "N W"], state: ShortlistState, k: int, never: tuple[int, ...]
    ) -> tuple[TopK, ShortlistState]:
        """Implements `SearchModel.top_k`."""
        logits, state = self._listed_logits(tokens.flatten(), state)
        ids = state.lists.ids
        mask = token_mask(never, self.shortlist.vocab_size, tokens.device)[ids]
        log_p, indices = best_tokens(logits, min(k, len(ids)), mask)
        return TopK.of_raw_logits(*(x.unflatten(0, tokens.shape) for x in (log_p, ids[indices]))), state

    def _listed_logits(
        self, tokens: Int[Tensor, " B"], state: ShortlistState
    ) -> tuple[Float[Tensor, "B C"], ShortlistState]:
        """Steps; returns the logits of the union of all lists, with -inf for tokens that the row's own list lacks."""
        x, inner = self.model.hidden_model.step(tokens, state.inner)
        logits = state.lists.projection_to_ids(x).masked_fill_(state.lists.forbidden[state.list_of], -torch.inf)
        return logits, replace(state, inner=inner)


def n_outputs(linear: nn.Linear | PackedLinear) -> int:
    """Returns the number of outputs of a linear layer, packed or not."""
    return linear.columns if isinstance(linear, PackedLinear) else linear.out_features


def select_outputs(linear: nn.Linear | PackedLinear, ids: Int[Tensor, " C"]) -> Callable[[Tensor], Tensor]:
    """Returns a linear layer, packed or not, restricted to some of its outputs."""
    if isinstance(linear, PackedLinear):
        return linear.select(ids)
    return partial(F.linear, **{name: parameter[ids] for name, parameter in linear.named_parameters()})
