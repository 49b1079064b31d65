"""Scores of given translations: their log-probabilities under the model."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from transformer.blocks import causal_mask, padding_mask
from transformer.data.batch import PairBatch
from transformer.data.dataset import pair_batch
from transformer.decoding import SharedModels, average_log_p
from transformer.pipelines.translation.directions import check_target_language
from transformer.pipelines.translation.reranking import ReverseScore
from transformer.pipelines.translation.translator import Translator
from transformer.text.lines import MAX_LINE_CHARACTERS, is_overlong
from transformer.text.normalization import split_outer_space
from transformer.tokenizers.special_tokens import PAD_ID
from transformer.transformer import Transformer

CHUNK_ROWS: Final = 256
"""Number of positions whose logits are in memory at a time."""


@dataclass(frozen=True)
class PairScore:
    """Score of a translation.

    Attributes:
        score: Log-probability of its tokens in nats, EOS included; NaN if a side is too long for the model.
        token_scores: Log-probability of each token.
        pieces: Printable tokens, EOS last.
        flags: Warnings for the reader; empty if there are none.
    """

    score: float
    token_scores: tuple[float, ...]
    pieces: tuple[str, ...]
    flags: tuple[str, ...] = ()

    @property
    def per_token(self) -> float:
        """Mean log-probability of a token; exp(-per_token) is the perplexity."""
        return self.score / max(1, len(self.token_scores))


def score_pairs(
    translator: Translator, pairs: Sequence[tuple[str, str]], *, target_language: str | None = None
) -> list[PairScore]:
    """Scores pairs of a source and a translation, in order; outer white space does not count, as in a translation.

    Args:
        translator: Translator of the model.
        pairs: Sources and translations.
        target_language: Language of the translations, for a model of several languages; None is the translator's.

    Raises:
        ConfigError: The model translates to several languages, and none is chosen, or not to this one.
    """
    segmenter = translator.segmenter_to(target_language) if target_language else translator.segmenter
    tokenizers = segmenter.tokenizers if target_language else translator.tokenizers
    models = translator.models
    check_target_language(segmenter.config, tokenizers)
    pairs = [(split_outer_space(source)[1], split_outer_space(target)[1]) for source, target in pairs]
    overlong = [[is_overlong(text) for text in pair] for pair in pairs]
    pairs = [("", "") if any(sides) else pair for pair, sides in zip(pairs, overlong, strict=True)]
    sources = tokenizers.source.encode_batch([source for source, _ in pairs])
    targets = tokenizers.target.encode_batch([target for _, target in pairs])
    limits = min(model.src_pos.seq_len for model in models), translator.max_target_tokens
    results: dict[int, PairScore] = {}
    fitting: list[int] = []
    source_lengths = segmenter.source_lengths([source for source, _ in pairs], sources)
    warnings = [tokenizers.source.language_warning(source) for source, _ in pairs]
    for index, lengths in enumerate(zip(source_lengths, map(len, targets), strict=True)):
        flags = [
            f"the {name} has {length + 1} tokens, more than the model's {limit}"
            for name, length, limit in zip(("source", "translation"), lengths, limits, strict=True)
            if length >= limit
        ] + [
            f"the {name} has more than {MAX_LINE_CHARACTERS:,} characters"
            for name, is_long in zip(("source", "translation"), overlong[index], strict=True)
            if is_long
        ]
        if flags:
            results[index] = PairScore(math.nan, (), (), tuple(flags))
        else:
            fitting.append(index)
    batches = list(_batches(fitting, sources, targets, translator.batch_tokens))
    special_tokens = tokenizers.source.special_tokens, tokenizers.target.special_tokens
    tasks: list[ScoreTask] = []
    for batch in batches:
        ids = [[np.asarray(side[index], np.int32) for index in batch] for side in (sources, targets)]
        padded = pair_batch(ids[0], ids[1], special_tokens).to(translator.device)
        model_sources = [retokenize(padded.src) for retokenize in translator.retokenizers]
        pads = special_tokens[0].padding, special_tokens[1].padding
        tasks.append(ScoreTask(padded, translator.search.average, pads, model_sources))
    n_tokens = sum(len(sources[index]) + len(targets[index]) for index in fitting)
    for batch, scored in zip(batches, translator.searcher.run(tasks, n_tokens, translator.config), strict=True):
        for index, scores in zip(batch, scored, strict=True):
            pieces = tokenizers.target.pieces([*targets[index], special_tokens[1].end])
            flags = (warnings[index],) if warnings[index] else ()
            results[index] = PairScore(sum(scores), tuple(scores), tuple(pieces), flags)
    return [results[index] for index in range(len(pairs))]


def reverse_scores(translator: Translator, pairs: Sequence[tuple[str, str]]) -> list[ReverseScore]:
    """Returns the score of the second text of each pair, given the first one, for `Reranker`."""
    return [ReverseScore(pair.score, len(pair.token_scores)) for pair in score_pairs(translator, pairs)]


@dataclass(frozen=True)
class ScoreTask:
    """A batch of pairs to score; the fields are the arguments of `token_scores`."""

    batch: PairBatch
    average: str
    pad_ids: tuple[int, int]
    sources: Sequence[Tensor]

    def __call__(self, shared: SharedModels) -> list[list[float]]:
        """Returns the scores of the target tokens of each pair."""
        return token_scores(shared.models, self.batch, self.average, self.pad_ids, self.sources)


@torch.inference_mode()
def token_scores(
    models: Sequence[Transformer],
    batch: PairBatch,
    average: str = "log_probability",
    pad_ids: tuple[int, int] = (PAD_ID, PAD_ID),
    sources: Sequence[Tensor] = (),
) -> list[list[float]]:
    """Computes the log-probability of every target token, EOS included, in nats, as a search would score it.

    Args:
        models: One model, or several whose distributions are averaged.
        batch: Pairs of sources and translations.
        average: Kind of average, see `Ensemble`.
        pad_ids: Padding ids of source and target.
        sources: Source tokens for each model, (B, S) where S may differ between models. The default is the batch's.
    """
    inputs = [(src, padding_mask(src, pad_ids[0])) for src in sources or [batch.src] * len(models)]
    tgt_mask = causal_mask(batch.tgt.size(1), batch.tgt.device)
    scored = batch.labels != pad_ids[1]
    hidden = [
        model.decode(model.encode(src, src_mask), src_mask, batch.tgt, tgt_mask)
        for model, (src, src_mask) in zip(models, inputs, strict=True)
    ]
    chunks: list[Tensor] = []
    for labels, *rows in zip(
        batch.labels[scored].split(CHUNK_ROWS), *(states[scored].split(CHUNK_ROWS) for states in hidden), strict=True
    ):
        log_p = [model.log_probabilities(states) for model, states in zip(models, rows, strict=True)]
        mean = log_p[0] if len(log_p) == 1 else average_log_p(log_p, average).log_softmax(dim=-1)
        chunks.append(mean.gather(1, labels[:, None])[:, 0])
    scores = iter(torch.cat(chunks).tolist())
    return [[next(scores) for _ in range(n)] for n in scored.sum(dim=1).tolist()]


def _batches(
    indices: Sequence[int], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], max_tokens: int
) -> Iterator[list[int]]:
    """Yields batches of pairs of similar length, longest first, with at most `max_tokens` padded tokens."""

    def length(index: int) -> int:
        return 1 + max(len(sources[index]), len(targets[index]))

    order = sorted(indices, key=length, reverse=True)
    start = 0
    while start < len(order):
        size = max(1, max_tokens // length(order[start]))
        yield order[start : start + size]
        start += size
