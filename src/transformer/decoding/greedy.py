"""Greedy search: the most probable token at each step."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.hypothesis import Hypothesis
from transformer.protocols import Generates
from transformer.text.control import BOS_ID, EOS_ID, PAD_ID, UNK_ID

NEVER_WRITTEN = (PAD_ID, BOS_ID, UNK_ID)
COMPACT_BELOW = 0.75
"""Finished rows are dropped once fewer than this share of the rows is still being written."""


@torch.inference_mode()
def greedy(
    model: Generates,
    src: Int[Tensor, "B S"],
    src_mask: Bool[Tensor, "B 1 1 S"],
    limits: Int[Tensor, " B"],
) -> list[Hypothesis]:
    """Writes each row until EOS or its limit; finished rows leave the batch.

    Args:
        model: in evaluation mode.
        src: padded source tokens.
        src_mask: True where `src` is not padding.
        limits: most tokens of each row, EOS included; at least 1.

    Returns:
        One hypothesis a row, in order.

    Raises:
        ConfigError: a source or a limit exceeds the model's positions.
    """
    limit = int(limits.max())
    written = _Written.empty(src.size(0), limit, src.device)
    rows = torch.arange(src.size(0), device=src.device)  # which row of `src` each active row writes
    active = torch.ones_like(rows, dtype=torch.bool)
    tokens = torch.full_like(rows, BOS_ID)
    state = model.begin(src, src_mask, limit)
    for position in range(limit):
        logits, state = model.step(tokens, state)
        tokens, log_p = best_token(logits)
        written.add(rows, position, tokens, log_p, active)
        active &= (tokens != EOS_ID) & (limits[rows] > position + 1)
        alive = int(active.sum())
        if not alive:
            break
        if alive < COMPACT_BELOW * active.numel():
            kept = active.nonzero()[:, 0]
            state, rows, tokens, active = state.select(kept), rows[kept], tokens[kept], active[kept]
    return written.hypotheses()


def best_token(logits: Float[Tensor, "B V"]) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """The most probable token that may be written, and its log-probability under the whole distribution."""
    best = log_probabilities(logits).max(dim=-1)
    return best.indices, best.values


def log_probabilities(logits: Float[Tensor, "*rows V"]) -> Float[Tensor, "*rows V"]:
    """Log softmax in float32; -inf for tokens that are never written."""
    log_p = logits.float().log_softmax(dim=-1)
    log_p[..., list(NEVER_WRITTEN)] = -torch.inf  # after the softmax: scores stay those of the whole distribution
    return log_p


@dataclass
class _Written:
    """What each row has written so far."""

    tokens: Int[Tensor, "B L"]
    lengths: Int[Tensor, " B"]
    scores: Float[Tensor, " B"]
    finished: Bool[Tensor, " B"]

    @classmethod
    def empty(cls, n_rows: int, limit: int, device: torch.device) -> "_Written":
        lengths = torch.zeros(n_rows, dtype=torch.long, device=device)
        return cls(
            tokens=torch.full((n_rows, limit), PAD_ID, device=device),
            lengths=lengths,
            scores=torch.zeros(n_rows, dtype=torch.float32, device=device),
            finished=torch.zeros_like(lengths, dtype=torch.bool),
        )

    def add(self, rows: Tensor, position: int, tokens: Tensor, log_p: Tensor, active: Tensor) -> None:
        """Adds one token to each active row; EOS ends the row and is not kept."""
        self.scores[rows] += torch.where(active, log_p, 0.0)
        ends = active & (tokens == EOS_ID)
        self.finished[rows] |= ends
        writes = active & ~ends
        self.tokens[rows[writes], position] = tokens[writes]
        self.lengths[rows] += writes.long()

    def hypotheses(self) -> list[Hypothesis]:
        rows = zip(
            self.tokens.tolist(), self.lengths.tolist(), self.scores.tolist(), self.finished.tolist(), strict=True
        )
        return [Hypothesis(tokens[:length], score, finished) for tokens, length, score, finished in rows]
