"""The sentences that are being searched at one time."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.candidates import Candidates, normalized, rank
from transformer.decoding.config import Request, Search
from transformer.decoding.constrained import standing
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.sampling import uniforms
from transformer.errors import ConfigError
from transformer.interfaces import GenerativeModel, State
from transformer.tokenizers.special_tokens import BOS_ID, PAD_ID, SpecialTokenIds

INITIAL_CAPACITY = 32
"""Places for tokens that are added when those at hand are full."""


@dataclass
class SentenceState:
    """What is known of one sentence.

    Attributes:
        index: its place among all that are searched for.
        request: what was asked.
        ended: hypotheses that reached EOS, of each group of the beam.
        cut: those that were followed when the limit came.
        length: tokens written so far.
        done: nothing of it is followed any more.
    """

    index: int
    request: Request
    ended: list[list[Hypothesis]]
    cut: list[Hypothesis] = field(default_factory=list[Hypothesis])
    length: int = 0
    done: bool = False

    def hypotheses(self, search: Search) -> list[Hypothesis]:
        """Best first: those that ended, then those that were cut, of which those come first that hold most phrases.

        With `limit_ends`, all of them by what they are compared by. Samples may be equal, hypotheses of a beam are not.
        """
        if search.limit_ends:
            found = rank([*chain(*self.ended), *self.cut], search.penalty)
        else:
            cut = rank(self.cut, search.penalty)
            cut.sort(key=lambda hypothesis: -standing(hypothesis.tokens, self.request.required))
            found = [*rank([*chain(*self.ended)], search.penalty), *cut]
        return (found if search.sampling else _different(found))[: search.n_best]

    def is_content(self, group: int, best_followed: float, search: Search) -> bool:
        """Whether no hypothesis of a group that is followed needs to be followed on.

        Values only fall and penalties only grow, so value / penalty(limit) is the most that one can still reach.
        """
        if best_followed == -torch.inf:
            return True
        size, ended = search.beam // search.groups, self.ended[group]
        if len(ended) < size:
            return False
        worst = normalized(rank(ended, search.penalty)[size - 1], search.penalty)
        return search.stopping == "early" or best_followed / search.penalty(self.request.limit) <= worst


@dataclass
class BeamState:
    """N sentences with W hypotheses each; row n * W + w of the state is hypothesis w of sentence n.

    Attributes:
        sentences: of the rows.
        state: of the model.
        tokens: the last token of each hypothesis, or BOS.
        scores: sums of log-probabilities.
        values: what hypotheses are compared by; the same tensor as `scores` where no rule changes it.
        written: tokens of each hypothesis, of which each sentence has `length`.
        special_tokens: Ids of the special tokens.
        uniform: random numbers of each sentence, where tokens are drawn.
    """

    sentences: list[SentenceState]
    state: State
    tokens: Int[Tensor, "N W"]
    scores: Float[Tensor, "N W"]
    values: Float[Tensor, "N W"]
    written: Int[Tensor, "N W L"]
    special_tokens: SpecialTokenIds
    uniform: Float[Tensor, "N W M"] | None = None

    @classmethod
    def begin(
        cls,
        model: GenerativeModel,
        numbered: Sequence[tuple[int, Request]],
        search: Search,
        device: torch.device,
        special_tokens: SpecialTokenIds,
        *,
        filled_up_to: int = 0,
    ) -> "BeamState":
        """Reads the sources of new sentences, filled up to so many tokens, or as many as the longest has."""
        requests = [request for _, request in numbered]
        if (search.groups > 1 or search.sampling) and any(request.required for request in requests):
            raise ConfigError("required phrases are held by a beam; leave out groups and sampling")
        n, width = len(requests), search.beam
        src, src_mask = (each.to(device) for each in _padded([request.source for request in requests], filled_up_to))
        limit = max(request.limit for request in requests)
        state = model.begin(src, src_mask, limit)
        if width > 1:
            state = state.select(torch.arange(n, device=device).repeat_interleave(width))
        scores = torch.full((n, width), 0.0 if search.sampling else -torch.inf, device=device)
        scores[:, :: width // search.groups] = 0.0  # at first, a group has one hypothesis: the empty one
        first = torch.tensor([BOS_ID if request.first is None else request.first for request in requests])
        uniform = None
        if (sampling := search.sampling) is not None:
            drawn = [uniforms(sampling.seed, request.number, width, request.limit) for request in requests]
            uniform = torch.stack([F.pad(each, (0, limit - each.size(1))) for each in drawn]).to(device)
        return cls(
            [SentenceState(index, request, [[] for _ in range(search.groups)]) for index, request in numbered],
            state,
            tokens=first.to(device)[:, None].repeat(1, width),
            scores=scores,
            values=scores,
            written=torch.full((n, width, min(limit, INITIAL_CAPACITY)), PAD_ID, device=device),
            special_tokens=special_tokens,
            uniform=uniform,
        )

    @property
    def end_id(self) -> int:
        """The token that ends a sentence; -1, which is none, where only the limit does."""
        return end_of(self.special_tokens)

    @property
    def lengths(self) -> Int[Tensor, " N"]:
        """Tokens that each sentence has written."""
        return torch.tensor([sentence.length for sentence in self.sentences], device=self.tokens.device)

    def join(self, other: "BeamState") -> "BeamState":
        """The sentences of both."""
        scores = torch.cat([self.scores, other.scores])
        are_same = self.values is self.scores and other.values is other.scores
        uniform = None
        if self.uniform is not None and other.uniform is not None:
            uniform = _below(self.uniform, other.uniform)
        return BeamState(
            [*self.sentences, *other.sentences],
            self.state.join(other.state),
            torch.cat([self.tokens, other.tokens]),
            scores,
            scores if are_same else torch.cat([self.values, other.values]),
            _below(self.written, other.written),
            self.special_tokens,
            uniform,
        )

    def end(self, candidates: Candidates, places: slice, group: int, except_rows: Sequence[int] = ()) -> None:
        """Keeps the candidates at some places that are EOS, each with the tokens before it."""
        ends = candidates.tokens[:, places] == self.end_id
        if not ends.any():
            return
        ends &= candidates.values[:, places] != -torch.inf
        if except_rows:
            ends[list(except_rows)] = False
        rows, found = ends.nonzero(as_tuple=True)
        if not len(rows):
            return
        written = self.written[rows, candidates.beam_indices[rows, found]]
        columns = (rows, written, candidates.scores[rows, found], candidates.values[rows, found])
        for row, tokens, score, value in zip(*(column.tolist() for column in columns), strict=True):
            sentence = self.sentences[row]
            sentence.ended[group].append(Hypothesis(tokens[: sentence.length], score, finished=True, value=value))

    def follow(self, followed: Candidates, search: Search) -> None:
        """Writes the next token of every hypothesis that is followed; marks the sentences that are done."""
        groups: list[list[float]] = followed.values.unflatten(1, (search.groups, -1)).amax(dim=2).tolist()
        all_follow = -torch.inf not in chain(*groups)
        if not all_follow:
            stuck = [max(best) == -torch.inf and not any(sentence.ended)
                     for sentence, best in zip(self.sentences, groups, strict=True)]  # fmt: skip
            self._cut([row for row, is_stuck in enumerate(stuck) if is_stuck], self.values)  # every token is forbidden
        reach = [sentence.length + 1 == sentence.request.limit for sentence in self.sentences]
        self._cut(
            [row for row, sentence in enumerate(self.sentences) if reach[row] and sentence.request.reserve_eos],
            followed.values if search.sampling else self.values,
        )
        lengths = {sentence.length for sentence in self.sentences}
        if max(lengths) == self.written.size(2):
            self.written = F.pad(self.written, (0, INITIAL_CAPACITY), value=PAD_ID)
        if self.tokens.size(1) > 1:
            self.written = self.written.gather(1, followed.beam_indices[:, :, None].expand_as(self.written))
        if len(lengths) == 1:
            self.written[:, :, lengths.pop()] = followed.tokens
        else:
            places = self.lengths[:, None, None].expand(-1, self.tokens.size(1), 1)
            self.written.scatter_(2, places, followed.tokens[:, :, None])
        self.tokens, self.scores, self.values = followed.tokens, followed.scores, followed.values
        for sentence, best in zip(self.sentences, groups, strict=True):
            sentence.length += 1
            if not all_follow or any(sentence.ended):  # else none is content
                sentence.done = all(sentence.is_content(group, value, search) for group, value in enumerate(best))
        ends = [row for row, sentence in enumerate(self.sentences) if reach[row] and not sentence.done]
        self._cut([row for row in ends if not self.sentences[row].request.reserve_eos], self.values)
        for row in ends:
            self.sentences[row].done = True

    def _cut(self, rows: Sequence[int], kept: Float[Tensor, "N W"]) -> None:
        """Keeps what is followed of some sentences as cut, but for those hypotheses for which `kept` has -inf."""
        if not rows:
            return
        columns = (column[list(rows)].tolist() for column in (self.written, self.scores, self.values, kept))
        for row, *own in zip(rows, *columns, strict=True):
            sentence = self.sentences[row]
            sentence.cut = [
                Hypothesis(tokens[: sentence.length], score, finished=False, value=value)
                for tokens, score, value, alive in zip(*own, strict=True)
                if alive != -torch.inf
            ]

    def leave(self, beam_indices: Int[Tensor, "N W"]) -> "BeamState | None":
        """The table without the sentences that are done, the state's rows in the order of their hypotheses.

        Args:
            beam_indices: which of the rows before the step each hypothesis continues.
        """
        if beam_indices.size(1) == 1 and not any(sentence.done for sentence in self.sentences):
            return self  # each goes on from itself
        kept = _without_holes([not sentence.done for sentence in self.sentences])
        if not kept:
            return None
        rows = torch.tensor(kept, device=self.tokens.device)
        selected = (rows[:, None] * beam_indices.size(1) + beam_indices[rows]).flatten()
        if len(kept) == len(self.sentences):
            stays = torch.equal(selected, torch.arange(beam_indices.numel(), device=selected.device))
            return self if stays else replace(self, state=self.state.select(selected))
        scores = self.scores[rows]
        return BeamState(
            [self.sentences[row] for row in kept],
            self.state.select(selected),
            self.tokens[rows],
            scores,
            scores if self.values is self.scores else self.values[rows],
            self.written[rows],
            self.special_tokens,
            None if self.uniform is None else self.uniform[rows],
        )


def end_of(special_tokens: SpecialTokenIds) -> int:
    """The token that ends a sentence; -1, which is none, where there is none."""
    return -1 if special_tokens.eos is None else special_tokens.eos


def _different(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The first of those with equal tokens, which groups of a beam may agree on."""
    found: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in hypotheses:
        found.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(found.values())


def _without_holes(stays: Sequence[bool]) -> list[int]:
    """Which row comes to each place when the last rows fill the places of those that do not stay."""
    n = sum(stays)
    last = iter([row for row in reversed(range(len(stays))) if stays[row]])
    return [row if stays[row] else next(last) for row in range(n)]


def _below(ours: Tensor, theirs: Tensor) -> Tensor:
    """One below the other, the shorter in the last axis filled up."""
    length = max(ours.size(-1), theirs.size(-1))
    return torch.cat([F.pad(each, (0, length - each.size(-1)), value=PAD_ID) for each in (ours, theirs)])


def _padded(rows: Sequence[Sequence[int]], least: int) -> tuple[Int[Tensor, "N S"], Bool[Tensor, "N 1 1 S"]]:
    """The rows filled up with padding to one length, and which of them is none."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), max(lengths.max(), least)), PAD_ID, dtype=np.int64)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = tokens
    stands = np.arange(padded.shape[1]) < lengths[:, None]
    return torch.from_numpy(padded), torch.from_numpy(stands)[:, None, None, :]
