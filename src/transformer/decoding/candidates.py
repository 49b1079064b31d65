"""The stages of a step: expand or draw, finish, prune; and at the end, rank.

Axis letters beside those of the blocks: N sentences, W hypotheses of each, K candidates of each, L room for tokens.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.length_penalties import LengthPenalty


@dataclass(frozen=True)
class Candidates:
    """Continuations of each sentence, best first; K of them.

    Attributes:
        values: what they are compared by; -inf where there is no candidate.
        scores: sum of log-probabilities, the new token's included.
        beam_indices: which of the sentence's hypotheses is continued.
        tokens: the new token.
    """

    values: Float[Tensor, "N K"]
    scores: Float[Tensor, "N K"]
    beam_indices: Int[Tensor, "N K"]
    tokens: Int[Tensor, "N K"]

    def of(self, sentences: Int[Tensor, " M"]) -> "Candidates":
        """The candidates of some sentences."""
        values = self.values[sentences]
        scores = values if self.scores is self.values else self.scores[sentences]
        return Candidates(values, scores, self.beam_indices[sentences], self.tokens[sentences])

    def filled(self, size: int) -> "Candidates":
        """As many as `size`; those that are missing have the value -inf."""
        missing = size - self.values.size(1)
        values, scores = (F.pad(each, (0, missing), value=-torch.inf) for each in (self.values, self.scores))
        beam_indices, tokens = (F.pad(each, (0, missing)) for each in (self.beam_indices, self.tokens))
        return Candidates(values, values if self.values is self.scores else scores, beam_indices, tokens)

    @classmethod
    def join(cls, parts: "list[Candidates]") -> "Candidates":
        """The candidates of all parts, side by side."""
        if len(parts) == 1:
            return parts[0]
        sides = zip(*((part.values, part.scores, part.beam_indices, part.tokens) for part in parts), strict=True)
        return cls(*(torch.cat(side, dim=1) for side in sides))


def log_probabilities(logits: Float[Tensor, "*rows V"], never: tuple[int, ...]) -> Float[Tensor, "*rows V"]:
    """Log softmax in float32; -inf for tokens that are never written."""
    log_p = logits.float().log_softmax(dim=-1)
    log_p[..., list(never)] = -torch.inf  # after the softmax: scores stay those of the whole distribution
    return log_p


def spread(logits: Float[Tensor, "N W C"], ids: Int[Tensor, " C"], vocab_size: int) -> Float[Tensor, "N W V"]:
    """Logits of some tokens among those of all: -inf for the others."""
    return logits.new_full((*logits.shape[:2], vocab_size), -torch.inf).index_copy_(2, ids, logits)


@dataclass(frozen=True)
class TopK:
    """The best tokens of each hypothesis, K of them: more than K of one can not be among the K best of a sentence.

    Attributes:
        tokens: best first.
        log_p: their log-probabilities.
        worth: the same after all rules; the same tensor where there is no rule.
    """

    tokens: Int[Tensor, "N W K"]
    log_p: Float[Tensor, "N W K"]
    worth: Float[Tensor, "N W K"]


def top_k_processed(log_p: Float[Tensor, "N W V"], worth: Float[Tensor, "N W V"], k: int) -> TopK:
    """The k tokens of each hypothesis that are worth most."""
    best = worth.topk(min(k, worth.size(-1)), dim=-1)
    return TopK(best.indices, best.values if worth is log_p else log_p.gather(-1, best.indices), best.values)


def expand(
    offered: TopK, scores: Float[Tensor, "N W"], values: Float[Tensor, "N W"], k: int, first_beam_index: int = 0
) -> Candidates:
    """The k best continuations of each sentence's hypotheses, by the sum of what their tokens are worth.

    Args:
        offered: at least the k best tokens of each hypothesis.
        scores: sums of log-probabilities so far.
        values: sums of worths so far; the same tensor where there never was a rule.
        k: how many.
        first_beam_index: number of the first of the hypotheses.
    """
    if values.size(1) == 1:  # in the order in which its tokens are offered
        tokens, sums = offered.tokens[:, 0, :k], values + offered.worth[:, 0, :k]
        is_score = offered.worth is offered.log_p and values is scores
        new_scores = sums if is_score else scores + offered.log_p[:, 0, :k]
        return Candidates(sums, new_scores, torch.full_like(tokens, first_beam_index), tokens)
    sums = (values[:, :, None] + offered.worth).flatten(1)
    best = sums.topk(min(k, sums.size(1)), dim=1)
    beam_indices, tokens = best.indices // offered.tokens.size(-1), offered.tokens.flatten(1).gather(1, best.indices)
    new_scores = best.values
    if offered.worth is not offered.log_p or values is not scores:
        new_scores = scores.gather(1, beam_indices) + offered.log_p.flatten(1).gather(1, best.indices)
    return Candidates(best.values, new_scores, beam_indices + first_beam_index, tokens)


def prune(candidates: Candidates, size: int, end: int) -> Candidates:
    """The best `size` that do not end, best first; where there are fewer, the others have the value -inf."""
    values = candidates.values.masked_fill(candidates.tokens == end, -torch.inf)
    kept = values.topk(min(size, values.size(1)), dim=1)
    beam_indices, tokens = (each.gather(1, kept.indices) for each in (candidates.beam_indices, candidates.tokens))
    is_score = candidates.values is candidates.scores
    scores = kept.values if is_score else candidates.scores.gather(1, kept.indices)
    pruned = Candidates(kept.values, scores, beam_indices, tokens)
    return pruned if kept.values.size(1) == size else pruned.filled(size)


def rank(hypotheses: list[Hypothesis], penalty: LengthPenalty) -> list[Hypothesis]:
    """Best first, by value / penalty(|Y|) + coverage."""
    return sorted(hypotheses, key=lambda hypothesis: normalized(hypothesis, penalty), reverse=True)


def normalized(hypothesis: Hypothesis, penalty: LengthPenalty) -> float:
    """Value / penalty(|Y|) + coverage."""
    return hypothesis.value / penalty(hypothesis.length) + hypothesis.coverage
