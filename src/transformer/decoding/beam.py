"""Beam search in stages: expand, finish, prune, rank.

Axis letters beside those of the blocks: N sentences, W hypotheses of each, K candidates of each, L tokens written so
far, M = L + 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.greedy import COMPACT_BELOW, log_probabilities
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.penalties import LengthPenalty, paper_length_penalty
from transformer.errors import ConfigError
from transformer.protocols import Generates
from transformer.text.control import BOS_ID, EOS_ID


@dataclass(frozen=True)
class Beam:
    """How wide a search looks and when it is content.

    Attributes:
        size: hypotheses of a sentence that are followed at a time.
        penalty: compares hypotheses of different lengths.
        stopping: "early" ends a sentence once `size` hypotheses of it have ended; "exhaustive" goes on while one that
            is followed could still, at its limit, come before the worst of them.
    """

    size: int = 4
    penalty: LengthPenalty = field(default_factory=lambda: paper_length_penalty(0.6))
    stopping: str = "early"

    def __post_init__(self) -> None:
        """Refuses what is no beam.

        Raises:
            ConfigError: a size below 1, or another way of stopping.
        """
        if self.size < 1:
            raise ConfigError(f"beam size={self.size} is below 1; choose 1 for greedy search, or more")
        if self.stopping not in ("early", "exhaustive"):
            raise ConfigError(f"stopping={self.stopping!r} is unknown; choose 'early' or 'exhaustive'")


GREEDY: Final = Beam(size=1)
"""The most probable token at each step."""


@dataclass(frozen=True)
class Candidates:
    """The best continuations of each sentence, best first; K of them.

    Attributes:
        scores: sum of log-probabilities, the new token's included; -inf where there is no candidate.
        origins: which of the sentence's hypotheses is continued.
        tokens: the new token.
    """

    scores: Float[Tensor, "N K"]
    origins: Int[Tensor, "N K"]
    tokens: Int[Tensor, "N K"]

    def take(self, ranks: Int[Tensor, "N W"]) -> "Candidates":
        """The candidates at the given places."""
        return Candidates(*(tensor.gather(1, ranks) for tensor in (self.scores, self.origins, self.tokens)))


@dataclass
class _Sentence:
    """What is known of one sentence.

    Attributes:
        limit: most tokens of a hypothesis, EOS included.
        ended: hypotheses that reached EOS.
        cut: those that were followed when the limit came.
        done: nothing of it is followed any more.
    """

    limit: int
    ended: list[Hypothesis] = field(default_factory=list[Hypothesis])
    cut: list[Hypothesis] = field(default_factory=list[Hypothesis])
    done: bool = False

    def is_content(self, best_followed: float, beam: Beam) -> bool:
        """Whether no hypothesis that is followed needs to be followed on.

        Scores only fall and penalties only grow, so score / penalty(limit) is the most that one can still reach.
        """
        if best_followed == -torch.inf:
            return True
        if len(self.ended) < beam.size:
            return False
        worst = _value(rank(self.ended, beam.penalty)[beam.size - 1], beam.penalty)
        return beam.stopping == "early" or best_followed / beam.penalty(self.limit) <= worst


@torch.inference_mode()
def beam_search(
    model: Generates,
    src: Int[Tensor, "B S"],
    src_mask: Bool[Tensor, "B 1 1 S"],
    limits: Int[Tensor, " B"],
    beam: Beam,
) -> list[list[Hypothesis]]:
    """Follows the `beam.size` best hypotheses of every row; rows that are done leave the batch.

    At every step each hypothesis is continued with each token. Of all continuations of a row, those among the best
    `size` that are EOS have ended; the best `size` of the others are followed. A beam of 1 finds what `greedy`
    does, which is faster.

    Args:
        model: in evaluation mode.
        src: padded source tokens.
        src_mask: True where `src` is not padding.
        limits: most tokens of each row, EOS included; at least 1.
        beam: how to search.

    Returns:
        For each row up to `beam.size` hypotheses, best first: those that ended in EOS by score / penalty(|Y|), then
        those that were cut at the limit.

    Raises:
        ConfigError: a source or a limit exceeds the model's positions.

    Source: Graves 2012, "Sequence Transduction with Recurrent Neural Networks", Sec. 2.5; Vaswani et al. 2017,
    Sec. 6.1.
    """
    sentences = [_Sentence(limit) for limit in limits.tolist()]
    longest = max(sentence.limit for sentence in sentences)
    state = model.begin(src, src_mask, longest)
    searched = torch.arange(src.size(0), device=src.device)  # which sentences the rows belong to
    scores = torch.zeros(src.size(0), 1, device=src.device)
    written = torch.empty(src.size(0), 1, 0, dtype=torch.long, device=src.device)
    tokens = torch.full_like(searched, BOS_ID)
    for length in range(1, longest + 1):
        logits, state = model.step(tokens, state)
        width = scores.size(1)
        candidates = expand(logits.view(-1, width, logits.size(-1)), scores, 2 * beam.size)
        active = [sentences[number] for number in searched.tolist()]
        finish(active, candidates, written, beam.size)
        followed = prune(candidates, beam.size)
        written = extend(written, followed)
        leave(active, followed, written, length, beam)
        kept = torch.tensor([row for row, sentence in enumerate(active) if not sentence.done], device=src.device)
        if not kept.numel():
            break
        if kept.numel() >= COMPACT_BELOW * len(active):
            kept = torch.arange(len(active), device=src.device)
        state = state.select((kept[:, None] * width + followed.origins[kept]).flatten())
        tokens, scores = followed.tokens[kept].flatten(), followed.scores[kept]
        searched, written = searched[kept], written[kept]
    return [
        [*rank(sentence.ended, beam.penalty), *rank(sentence.cut, beam.penalty)][: beam.size] for sentence in sentences
    ]


def expand(logits: Float[Tensor, "N W V"], scores: Float[Tensor, "N W"], k: int) -> Candidates:
    """The k best continuations of each sentence's hypotheses, by the sum of log-probabilities."""
    sums = (scores[:, :, None] + log_probabilities(logits)).flatten(1)
    best = sums.topk(min(k, sums.size(1)), dim=1)
    size = logits.size(-1)
    return Candidates(best.values, best.indices // size, best.indices % size)


def finish(sentences: Sequence[_Sentence], candidates: Candidates, written: Int[Tensor, "N W L"], size: int) -> None:
    """Keeps the candidates among the best `size` that are EOS, each with the tokens before it."""
    best = slice(0, size)
    ends = (candidates.tokens[:, best] == EOS_ID) & candidates.scores[:, best].isfinite()
    for row, place in ends.nonzero().tolist():
        if not sentences[row].done:
            tokens = written[row, candidates.origins[row, place]].tolist()
            sentences[row].ended.append(Hypothesis(tokens, candidates.scores[row, place].item(), finished=True))


def prune(candidates: Candidates, size: int) -> Candidates:
    """The best `size` that do not end, best first; where there are fewer, the others have the score -inf."""
    scores = candidates.scores.masked_fill(candidates.tokens == EOS_ID, -torch.inf)
    kept = scores.topk(min(size, scores.size(1)), dim=1)
    taken = candidates.take(kept.indices)
    return Candidates(kept.values, taken.origins, taken.tokens)


def extend(written: Int[Tensor, "N W L"], followed: Candidates) -> Int[Tensor, "N K M"]:
    """The tokens of the hypotheses that are followed, the new one last."""
    origins = followed.origins[:, :, None].expand(-1, -1, written.size(2))
    return torch.cat([written.gather(1, origins), followed.tokens[:, :, None]], dim=2)


def leave(
    sentences: Sequence[_Sentence], followed: Candidates, written: Int[Tensor, "N K M"], length: int, beam: Beam
) -> None:
    """Marks the sentences that are done; at the limit, what was followed is kept as cut."""
    for row, (sentence, scores) in enumerate(zip(sentences, followed.scores.tolist(), strict=True)):
        if sentence.done:
            continue
        sentence.done = sentence.is_content(scores[0], beam)
        if not sentence.done and length == sentence.limit:
            sentence.done = True
            hypotheses = zip(written[row].tolist(), scores, strict=True)
            sentence.cut += [Hypothesis(tokens, score, False) for tokens, score in hypotheses if score != -torch.inf]


def rank(hypotheses: list[Hypothesis], penalty: LengthPenalty) -> list[Hypothesis]:
    """Best first, by score / penalty(|Y|)."""
    return sorted(hypotheses, key=lambda hypothesis: _value(hypothesis, penalty), reverse=True)


def _value(hypothesis: Hypothesis, penalty: LengthPenalty) -> float:
    return hypothesis.score / penalty(hypothesis.length)
