"""Given translations to scores: how probable the model finds them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.blocks import causal_mask, padding_mask
from transformer.data.batch import PairBatch
from transformer.data.dataset import pair_batch
from transformer.decoding import average_log_p
from transformer.pipelines.translation.translator import Translator
from transformer.tokenizers.special_tokens import PAD_ID
from transformer.transformer import Transformer

CHUNK_ROWS: Final = 256
"""Positions whose logits are held at a time."""


@dataclass(frozen=True)
class PairScore:
    """How probable a translation is.

    Attributes:
        score: log-probability of its tokens in nats, EOS included; NaN where a side is too long for the model.
        token_scores: the same of each token.
        pieces: printable tokens, EOS last.
        flags: what a reader should know; empty where all is well.
    """

    score: float
    token_scores: tuple[float, ...]
    pieces: tuple[str, ...]
    flags: tuple[str, ...] = ()

    @property
    def per_token(self) -> float:
        """Mean log-probability of a token; its negative's exponential is the perplexity."""
        return self.score / max(1, len(self.token_scores))


def score_pairs(translator: Translator, pairs: Sequence[tuple[str, str]]) -> list[PairScore]:
    """The score of every pair of a source and a translation, in order."""
    tokenizers, models = translator.tokenizers, translator.members
    sources = tokenizers.source.encode_batch([source for source, _ in pairs])
    targets = tokenizers.target.encode_batch([target for _, target in pairs])
    most = min(each.src_pos.seq_len for each in models), translator.max_target_tokens
    found: dict[int, PairScore] = {}
    fitting: list[int] = []
    of_sources = translator.source_sizes([source for source, _ in pairs], sources)
    for index, sizes in enumerate(zip(of_sources, map(len, targets), strict=True)):
        flags = [
            f"the {name} has {size + 1} tokens, more than the model's {room}"
            for name, size, room in zip(("source", "translation"), sizes, most, strict=True)
            if size >= room
        ]
        if flags:
            found[index] = PairScore(math.nan, (), (), tuple(flags))
        else:
            fitting.append(index)
    for batch in _batches(fitting, sources, targets, translator.batch_tokens):
        ids = [[np.asarray(side[index], np.int32) for index in batch] for side in (sources, targets)]
        device, average = translator.device, translator.search.average
        special_tokens = tokenizers.source.special_tokens, tokenizers.target.special_tokens
        pads = special_tokens[0].pad or 0, special_tokens[1].pad or 0
        framed = pair_batch(ids[0], ids[1], special_tokens).to(device)
        own = [reread(framed.src) for reread in translator.rereaders]
        for index, scores in zip(batch, token_scores(models, framed, average, pads, own), strict=True):
            pieces = tokenizers.target.pieces([*targets[index], special_tokens[1].eos or 0])
            found[index] = PairScore(sum(scores), tuple(scores), tuple(pieces))
    return [found[index] for index in range(len(pairs))]


@torch.inference_mode()
def token_scores(
    models: Sequence[Transformer],
    batch: PairBatch,
    average: str = "log_probability",
    pad_ids: tuple[int, int] = (PAD_ID, PAD_ID),
    sources: Sequence[Tensor] = (),
) -> list[list[float]]:
    """Log-probability of every token of each target, EOS included, in nats, as a search would score it.

    Args:
        models: one, or several whose distributions are averaged.
        batch: the pairs.
        average: how, see `Ensemble`.
        pad_ids: of source and target.
        sources: the source tokens of each model, (B, S) with an S of its own; those of the batch if not given.
    """
    read = [(src, padding_mask(src, pad_ids[0])) for src in sources or [batch.src] * len(models)]
    tgt_mask = causal_mask(batch.tgt.size(1), batch.tgt.device)
    scored = batch.labels != pad_ids[1]
    hidden = [
        model.decode(model.encode(src, src_mask), src_mask, batch.tgt, tgt_mask)
        for model, (src, src_mask) in zip(models, read, strict=True)
    ]
    found: list[Tensor] = []
    for labels, *rows in zip(
        batch.labels[scored].split(CHUNK_ROWS), *(each[scored].split(CHUNK_ROWS) for each in hidden), strict=True
    ):
        log_p = [model.log_probabilities(each) for model, each in zip(models, rows, strict=True)]
        found.append(
            _chosen(log_p[0] if len(log_p) == 1 else average_log_p(log_p, average).log_softmax(dim=-1), labels)
        )
    tokens = iter(torch.cat(found).tolist())
    return [[next(tokens) for _ in range(n)] for n in scored.sum(dim=1).tolist()]


def _chosen(log_p: Float[Tensor, "N V"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    return log_p.gather(1, labels[:, None])[:, 0]


def _batches(
    indices: Sequence[int], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], most_tokens: int
) -> Iterator[list[int]]:
    """Pairs of like length, longest first, within a budget of padded tokens."""

    def length(index: int) -> int:
        return 1 + max(len(sources[index]), len(targets[index]))

    order = sorted(indices, key=length, reverse=True)
    start = 0
    while start < len(order):
        size = max(1, most_tokens // length(order[start]))
        yield order[start : start + size]
        start += size
