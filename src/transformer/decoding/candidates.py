"""Candidates of one step of a beam search: expand the hypotheses, then prune to those that stay active.

These functions correspond to `BeamSearch.step` of fairseq and to `BeamSearchScorer.process` of transformers. Each
hypothesis carries two sums: its `score`, of the model's log-probabilities, and its `ranking_score`, of the processed
log-probabilities. Only the second decides which hypotheses survive.

Axis letters beside those of the blocks: N sentences, W hypotheses per sentence, K candidates per sentence, L positions
for generated tokens.
"""

import operator
from dataclasses import dataclass
from functools import reduce

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.hypothesis import Hypothesis
from transformer.options.length_penalties import LengthPenalty


@dataclass(frozen=True)
class Candidates:
    """The K best continuations of each sentence, best first.

    Attributes:
        ranking_scores: Sums of processed log-probabilities, by which candidates are compared; -inf where a candidate
            is missing.
        scores: Sums of the model's log-probabilities, the new token included.
        beam_indices: Index of the sentence's hypothesis that is continued.
        tokens: New token.
    """

    ranking_scores: Float[Tensor, "N K"]
    scores: Float[Tensor, "N K"]
    beam_indices: Int[Tensor, "N K"]
    tokens: Int[Tensor, "N K"]

    def select(self, sentences: Int[Tensor, " M"]) -> "Candidates":
        """Returns the candidates of some sentences."""
        ranking_scores = self.ranking_scores[sentences]
        scores = ranking_scores if self.scores is self.ranking_scores else self.scores[sentences]
        return Candidates(ranking_scores, scores, self.beam_indices[sentences], self.tokens[sentences])

    def padded(self, size: int) -> "Candidates":
        """Returns `size` candidates per sentence; those that are missing have the ranking score -inf."""
        missing = size - self.ranking_scores.size(1)
        ranking_scores, scores = (
            F.pad(sums, (0, missing), value=-torch.inf) for sums in (self.ranking_scores, self.scores)
        )
        beam_indices, tokens = (F.pad(indices, (0, missing)) for indices in (self.beam_indices, self.tokens))
        scores = ranking_scores if self.ranking_scores is self.scores else scores
        return Candidates(ranking_scores, scores, beam_indices, tokens)

    @classmethod
    def join(cls, groups: "list[Candidates]") -> "Candidates":
        """Concatenates the candidates of several beam groups."""
        if len(groups) == 1:
            return groups[0]
        columns = zip(
            *((group.ranking_scores, group.scores, group.beam_indices, group.tokens) for group in groups), strict=True
        )
        return cls(*(torch.cat(column, dim=1) for column in columns))


def log_probabilities(logits: Float[Tensor, "*rows V"], never: tuple[int, ...]) -> Float[Tensor, "*rows V"]:
    """Computes the log-softmax in float32, with -inf for the tokens that are never generated."""
    log_p = logits.float().log_softmax(dim=-1)
    log_p[..., list(never)] = -torch.inf  # after the softmax: scores stay those of the whole distribution
    return log_p


@dataclass(frozen=True)
class TopK:
    """The K best tokens of each hypothesis: no more than K of one hypothesis can be among the K best of a sentence.

    Attributes:
        tokens: Token ids, best first.
        log_p: Log-probabilities of the model.
        processed_log_p: Log-probabilities after all logits processors; the same tensor if there are none.
    """

    tokens: Int[Tensor, "N W K"]
    log_p: Float[Tensor, "N W K"]
    processed_log_p: Float[Tensor, "N W K"]

    @classmethod
    def of_raw_logits(cls, log_p: Float[Tensor, "N W K"], tokens: Int[Tensor, "N W K"]) -> "TopK":
        """Returns the best tokens by raw logits, where no logits processor applies."""
        return cls(tokens, log_p, log_p)


def top_k_processed(log_p: Float[Tensor, "N W V"], processed_log_p: Float[Tensor, "N W V"], k: int) -> TopK:
    """Returns the k tokens of each hypothesis with the highest processed log-probabilities."""
    best = processed_log_p.topk(min(k, processed_log_p.size(-1)), dim=-1)
    return TopK(best.indices, best.values if processed_log_p is log_p else log_p.gather(-1, best.indices), best.values)


def expand(
    top_k: TopK, scores: Float[Tensor, "N W"], ranking_scores: Float[Tensor, "N W"], k: int, first_beam_index: int = 0
) -> Candidates:
    """Returns the k best continuations of each sentence's hypotheses, by the sum of processed log-probabilities.

    Args:
        top_k: At least the k best tokens of each hypothesis.
        scores: Sums of log-probabilities so far.
        ranking_scores: Sums of processed log-probabilities so far; the same tensor if nothing was ever processed.
        k: Number of candidates per sentence.
        first_beam_index: Index of the first of these hypotheses within the beam.
    """
    if ranking_scores.size(1) == 1:  # the tokens of the only hypothesis are sorted already
        tokens, sums = top_k.tokens[:, 0, :k], ranking_scores + top_k.processed_log_p[:, 0, :k]
        is_score = top_k.processed_log_p is top_k.log_p and ranking_scores is scores
        new_scores = sums if is_score else scores + top_k.log_p[:, 0, :k]
        return Candidates(sums, new_scores, torch.full_like(tokens, first_beam_index), tokens)
    sums = (ranking_scores[:, :, None] + top_k.processed_log_p).flatten(1)
    values, indices = _sorted_descending(sums, k)
    beam_indices, tokens = indices // top_k.tokens.size(-1), top_k.tokens.flatten(1).gather(1, indices)
    new_scores = values
    if top_k.processed_log_p is not top_k.log_p or ranking_scores is not scores:
        new_scores = scores.gather(1, beam_indices) + top_k.log_p.flatten(1).gather(1, indices)
    return Candidates(values, new_scores, beam_indices + first_beam_index, tokens)


def _sorted_descending(sums: Float[Tensor, "N K"], k: int) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
    """Returns up to k largest sums of each row and their indices; of equal ones, the first comes first."""
    values, indices = sums.sort(dim=1, descending=True, stable=True)
    return values[:, :k], indices[:, :k]


def n_candidates(size: int, ends: tuple[int, ...]) -> int:
    """Returns how many candidates always leave `size` that do not end; a hypothesis may end in each of `ends`."""
    return size * max(2, 1 + len(ends))


def is_end(tokens: Int[Tensor, "*rows"], ends: tuple[int, ...]) -> Bool[Tensor, "*rows"]:
    """Marks the tokens that end a text."""
    first, *others = ends or (-1,)
    return reduce(operator.or_, (tokens == end for end in others), tokens == first)


def prune(candidates: Candidates, size: int, ends: tuple[int, ...]) -> Candidates:
    """Returns the `size` best candidates that do not end, best first; missing ones have the ranking score -inf."""
    ranking_scores = candidates.ranking_scores.masked_fill(is_end(candidates.tokens, ends), -torch.inf)
    values, best = _sorted_descending(ranking_scores, size)
    beam_indices, tokens = (indices.gather(1, best) for indices in (candidates.beam_indices, candidates.tokens))
    scores = values if candidates.ranking_scores is candidates.scores else candidates.scores.gather(1, best)
    pruned = Candidates(values, scores, beam_indices, tokens)
    return pruned if values.size(1) == size else pruned.padded(size)


def rank(hypotheses: list[Hypothesis], length_penalty: LengthPenalty) -> list[Hypothesis]:
    """Sorts hypotheses by their normalized scores, best first."""
    if len(hypotheses) < 2:
        return hypotheses
    return sorted(hypotheses, key=lambda hypothesis: hypothesis.normalized_score(length_penalty), reverse=True)
