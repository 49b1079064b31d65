"""The state of a batched beam search: the sentences that are being searched, and their active hypotheses.

In the terms of fairseq's `SequenceGenerator`, `BeamState` holds the tensors `tokens` and `scores` and the decoder's
incremental state, and `SentenceState.finished` is the list `finalized` of a sentence. A hypothesis is active until it
ends in EOS (finished) or reaches the limit (truncated). Sentences join and leave the batch at any step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.candidates import Candidates, is_end, rank
from transformer.decoding.constrained import count_occurrences
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.incremental_state import join_states
from transformer.decoding.request import Request
from transformer.decoding.sampling import random_stream
from transformer.errors import ConfigError
from transformer.interfaces import GenerativeModel, State
from transformer.options.search import Search
from transformer.tokenizers.special_tokens import BOS_ID, PAD_ID, SpecialTokenIds

INITIAL_CAPACITY = 32
"""Positions for generated tokens that are allocated first, and added whenever they are full."""


@dataclass
class SentenceState:
    """The progress of one sentence.

    Attributes:
        index: Index among all sentences of the search.
        request: The request that it answers.
        finished: Hypotheses that reached EOS, for each group of the beam.
        truncated: Hypotheses that were active when the limit was reached.
        length: Number of tokens generated so far.
        done: Whether no hypothesis is active any more.
    """

    index: int
    request: Request
    finished: list[list[Hypothesis]]
    truncated: list[Hypothesis] = field(default_factory=list[Hypothesis])
    length: int = 0
    done: bool = False

    def hypotheses(self, search: Search) -> list[Hypothesis]:
        """Returns up to `n_best` hypotheses, best first: finished ones, then truncated ones.

        Truncated hypotheses that satisfy more constraints come first. With `limit_ends`, all hypotheses are ranked
        together. Samples may be equal, hypotheses of a beam are distinct.
        """
        if search.limit_ends:
            ranked = rank([*chain(*self.finished), *self.truncated], search.length_penalty)
        else:
            truncated = rank(self.truncated, search.length_penalty)
            truncated.sort(key=lambda hypothesis: -count_occurrences(hypothesis.tokens, self.request.required))
            ranked = [*rank([*chain(*self.finished)], search.length_penalty), *truncated]
        return (ranked if search.sampling else _distinct(ranked))[: search.n_best]

    def can_stop(self, group: int, best_active: float, search: Search) -> bool:
        """Whether a beam group can stop: its active hypotheses can no longer change the result.

        Ranking scores only fall and length penalties only grow. The best that an active hypothesis can still reach is
        thus its ranking score / length_penalty(limit).

        Args:
            group: Index of the group.
            best_active: Ranking score of the best active hypothesis; -inf if there is none.
            search: Options of the search.
        """
        if best_active == -torch.inf:
            return True
        size, finished = search.beam // search.groups, self.finished[group]
        if len(finished) < size:
            return False
        worst = rank(finished, search.length_penalty)[size - 1].normalized_score(search.length_penalty)
        return search.stopping == "early" or best_active / search.length_penalty(self.request.limit) <= worst


@dataclass
class BeamState:
    """N sentences with W hypotheses each; row n * W + w of the model's state is hypothesis w of sentence n.

    Attributes:
        sentences: Progress of each sentence.
        state: State of the model.
        tokens: Last token of each hypothesis, BOS at first.
        scores: Sums of log-probabilities.
        ranking_scores: Sums of processed log-probabilities; the same tensor as `scores` if nothing is processed.
        generated: Tokens of each hypothesis, of which the first `length` of its sentence are valid.
        special_tokens: Ids of the special tokens.
        uniform: Random numbers of each sentence, one per step; none if tokens are not sampled.
    """

    sentences: list[SentenceState]
    state: State
    tokens: Int[Tensor, "N W"]
    scores: Float[Tensor, "N W"]
    ranking_scores: Float[Tensor, "N W"]
    generated: Int[Tensor, "N W L"]
    special_tokens: SpecialTokenIds
    uniform: Float[Tensor, "N W M"]

    @classmethod
    def begin(
        cls,
        model: GenerativeModel,
        numbered: Sequence[tuple[int, Request]],
        search: Search,
        device: torch.device,
        special_tokens: SpecialTokenIds,
        *,
        pad_to: int = 0,
    ) -> "BeamState":
        """Encodes the sources of new sentences, padded to the longest one or to `pad_to` tokens."""
        requests = [request for _, request in numbered]
        if (search.groups > 1 or search.sampling) and any(request.required for request in requests):
            raise ConfigError("required phrases need beam search; leave out groups and sampling")
        n, width = len(requests), search.beam
        src, src_mask = (x.to(device) for x in _padded([request.source for request in requests], pad_to))
        limit = max(request.limit for request in requests)
        state = model.begin(src, src_mask, limit)
        if width > 1:
            state = state.select(torch.arange(n, device=device).repeat_interleave(width))
        scores = torch.full((n, width), 0.0 if search.sampling else -torch.inf, device=device)
        scores[:, :: width // search.groups] = 0.0  # each group begins with one hypothesis, the empty one
        start_ids = [
            BOS_ID if request.decoder_start_token_id is None else request.decoder_start_token_id for request in requests
        ]
        uniform = scores.new_empty(n, width, 0)
        if (sampling := search.sampling) is not None:
            streams = [random_stream(sampling.seed, request.number, width, request.limit) for request in requests]
            uniform = torch.stack([F.pad(stream, (0, limit - stream.size(1))) for stream in streams]).to(device)
        return cls(
            [SentenceState(index, request, [[] for _ in range(search.groups)]) for index, request in numbered],
            state,
            tokens=torch.tensor(start_ids).to(device)[:, None].repeat(1, width),
            scores=scores,
            ranking_scores=scores,
            generated=torch.full((n, width, min(limit, INITIAL_CAPACITY)), PAD_ID, device=device),
            special_tokens=special_tokens,
            uniform=uniform,
        )

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a sentence; none if only the limit does."""
        return self.special_tokens.ends

    @property
    def lengths(self) -> Int[Tensor, " N"]:
        """The number of tokens that each sentence has generated."""
        return torch.tensor([sentence.length for sentence in self.sentences], device=self.tokens.device)

    def join(self, other: "BeamState") -> "BeamState":
        """Concatenates the sentences of both states."""
        scores = torch.cat([self.scores, other.scores])
        are_raw = self.ranking_scores is self.scores and other.ranking_scores is other.scores
        return BeamState(
            [*self.sentences, *other.sentences],
            join_states(self.state, other.state),
            torch.cat([self.tokens, other.tokens]),
            scores,
            scores if are_raw else torch.cat([self.ranking_scores, other.ranking_scores]),
            _concatenate_padded(self.generated, other.generated),
            self.special_tokens,
            _concatenate_padded(self.uniform, other.uniform),
        )

    def collect_finished(
        self, candidates: Candidates, columns: slice, group: int, except_rows: Sequence[int] = ()
    ) -> None:
        """Stores the candidates that are EOS as finished hypotheses.

        Args:
            candidates: Candidates of all sentences, best first.
            columns: Range of candidates that may finish.
            group: Index of the beam group that they belong to.
            except_rows: Sentences that are left out.
        """
        is_eos = is_end(candidates.tokens[:, columns], self.ends)
        if not is_eos.any():
            return
        is_eos &= candidates.ranking_scores[:, columns] != -torch.inf
        if except_rows:
            is_eos[list(except_rows)] = False
        rows, ranks = is_eos.nonzero(as_tuple=True)
        if not len(rows):
            return
        generated = self.generated[rows, candidates.beam_indices[rows, ranks]]
        values = (rows, generated, candidates.scores[rows, ranks], candidates.ranking_scores[rows, ranks])
        for row, tokens, score, ranking_score in zip(*(value.tolist() for value in values), strict=True):
            sentence = self.sentences[row]
            sentence.finished[group].append(
                Hypothesis(tokens[: sentence.length], score, finished=True, ranking_score=ranking_score)
            )

    def advance(self, active: Candidates, search: Search) -> "tuple[list[SentenceState], BeamState | None]":
        """Appends the next token to every hypothesis that stays active, and drops the sentences that are done.

        Returns:
            The sentences that are done, and the state of the others; None if no sentence remains.
        """
        self.append_tokens(active, search)
        done = [sentence for sentence in self.sentences if sentence.done]
        return done, self.drop_finished(active.beam_indices)

    def append_tokens(self, active: Candidates, search: Search) -> None:
        """Appends the next token to every hypothesis that stays active, and marks the sentences that are done."""
        best: list[list[float]] = active.ranking_scores.unflatten(1, (search.groups, -1)).amax(dim=2).tolist()
        are_all_active = -torch.inf not in chain(*best)
        if not are_all_active:
            stuck = [
                row
                for row, (sentence, groups) in enumerate(zip(self.sentences, best, strict=True))
                if max(groups) == -torch.inf and not any(sentence.finished)
            ]
            self._truncate(stuck, self.ranking_scores)  # every token is forbidden
        at_limit = [sentence.length + 1 == sentence.request.limit for sentence in self.sentences]
        self._truncate(
            [row for row, sentence in enumerate(self.sentences) if at_limit[row] and sentence.request.reserve_eos],
            active.ranking_scores if search.sampling else self.ranking_scores,
        )
        lengths = {sentence.length for sentence in self.sentences}
        if max(lengths) == self.generated.size(2):
            self.generated = F.pad(self.generated, (0, INITIAL_CAPACITY), value=PAD_ID)
        if self.tokens.size(1) > 1:
            self.generated = self.generated.gather(1, active.beam_indices[:, :, None].expand_as(self.generated))
        if len(lengths) == 1:
            self.generated[:, :, lengths.pop()] = active.tokens
        else:
            positions = self.lengths[:, None, None].expand(-1, self.tokens.size(1), 1)
            self.generated.scatter_(2, positions, active.tokens[:, :, None])
        self.tokens, self.scores, self.ranking_scores = active.tokens, active.scores, active.ranking_scores
        for sentence, groups in zip(self.sentences, best, strict=True):
            sentence.length += 1
            if not are_all_active or any(sentence.finished):  # otherwise, no group can stop
                sentence.done = all(sentence.can_stop(group, value, search) for group, value in enumerate(groups))
        cut = [row for row, sentence in enumerate(self.sentences) if at_limit[row] and not sentence.done]
        self._truncate([row for row in cut if not self.sentences[row].request.reserve_eos], self.ranking_scores)
        for row in cut:
            self.sentences[row].done = True

    def _truncate(self, rows: Sequence[int], alive: Float[Tensor, "N W"]) -> None:
        """Stores the active hypotheses of some sentences as truncated, except where `alive` is -inf."""
        if not rows:
            return
        columns = (column[list(rows)].tolist() for column in (self.generated, self.scores, self.ranking_scores, alive))
        for row, *hypotheses in zip(rows, *columns, strict=True):
            sentence = self.sentences[row]
            sentence.truncated = [
                Hypothesis(tokens[: sentence.length], score, finished=False, ranking_score=ranking_score)
                for tokens, score, ranking_score, is_alive in zip(*hypotheses, strict=True)
                if is_alive != -torch.inf
            ]

    def drop_finished(self, beam_indices: Int[Tensor, "N W"]) -> "BeamState | None":
        """Removes the sentences that are done and reorders the model's state; None if no sentence remains.

        Args:
            beam_indices: Index of the hypothesis before the step that each hypothesis continues.
        """
        if beam_indices.size(1) == 1 and not any(sentence.done for sentence in self.sentences):
            return self  # each hypothesis continues itself
        kept = _compacted([not sentence.done for sentence in self.sentences])
        if not kept:
            return None
        rows = torch.tensor(kept, device=self.tokens.device)
        state_rows = (rows[:, None] * beam_indices.size(1) + beam_indices[rows]).flatten()
        if len(kept) == len(self.sentences):
            is_unchanged = torch.equal(state_rows, torch.arange(beam_indices.numel(), device=state_rows.device))
            return self if is_unchanged else replace(self, state=self.state.select(state_rows))
        scores = self.scores[rows]
        return BeamState(
            [self.sentences[row] for row in kept],
            self.state.select(state_rows),
            self.tokens[rows],
            scores,
            scores if self.ranking_scores is self.scores else self.ranking_scores[rows],
            self.generated[rows],
            self.special_tokens,
            self.uniform[rows],
        )


def _distinct(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Removes all but the first of hypotheses with equal tokens, which several beam groups may have found."""
    distinct: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in hypotheses:
        distinct.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(distinct.values())


def _compacted(is_kept: Sequence[bool]) -> list[int]:
    """Returns the kept row for each position, where the last rows move into the positions of those removed."""
    n = sum(is_kept)
    last = iter([row for row in reversed(range(len(is_kept))) if is_kept[row]])
    return [row if is_kept[row] else next(last) for row in range(n)]


def _concatenate_padded(first: Tensor, second: Tensor) -> Tensor:
    """Concatenates two tensors along the first axis, padding the shorter one along the last axis."""
    length = max(first.size(-1), second.size(-1))
    return torch.cat([F.pad(x, (0, length - x.size(-1)), value=PAD_ID) for x in (first, second)])


def _padded(rows: Sequence[Sequence[int]], pad_to: int) -> tuple[Int[Tensor, "N S"], Bool[Tensor, "N 1 1 S"]]:
    """Pads rows of tokens to one length, at least `pad_to`; also returns a mask that is False at padding."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), max(lengths.max(), pad_to)), PAD_ID, dtype=np.int64)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = tokens
    mask = np.arange(padded.shape[1]) < lengths[:, None]
    return torch.from_numpy(padded), torch.from_numpy(mask)[:, None, None, :]
