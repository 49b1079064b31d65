"""Logits processors: functions that change the log-probabilities of the next token, given the tokens generated so far.

They correspond to the `LogitsProcessor` classes of transformers, with one difference: they change only the processed
log-probabilities, by which hypotheses are ranked. The scores of hypotheses remain the model's own log-probabilities.
Axis letters are those of `transformer.decoding.candidates`; of the L positions for tokens, each sentence has filled
`lengths`.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.request import Request
from transformer.options.search import Search

LogitsProcessor = Callable[[Tensor, Tensor, Tensor], None]
"""Changes log-probabilities (N, W, V) in place, given the tokens generated so far (N, W, L) and their number (N)."""


def make_logits_processors(search: Search, eos_id: int) -> list[LogitsProcessor]:
    """Creates the processors that a search applies to all sentences; `eos_id` is -1 if the model has none."""
    processors: list[LogitsProcessor] = []
    if search.repetition_penalty != 1:
        processors.append(partial(penalize_repetition, penalty=search.repetition_penalty))
    if search.no_repeat_ngram:
        processors.append(partial(forbid_repeated_ngrams, size=search.no_repeat_ngram))
    if search.banned:
        processors.append(partial(forbid_sequences, banned=group_by_length(search.banned)))
    if search.min_tokens and eos_id >= 0:
        processors.append(partial(forbid_early_eos, min_tokens=search.min_tokens, eos_id=eos_id))
    return processors


def penalize_repetition(
    log_p: Float[Tensor, "N W V"], generated: Int[Tensor, "N W L"], lengths: Int[Tensor, " N"], penalty: float
) -> None:
    """Applies a repetition penalty to every generated token, see `Search.repetition_penalty`."""
    is_generated = torch.arange(generated.size(2), device=generated.device) < lengths[:, None]
    log_p.copy_(torch.where(_token_mask(log_p, generated, is_generated[:, None]), log_p * penalty, log_p))


def forbid_repeated_ngrams(
    log_p: Float[Tensor, "N W V"], generated: Int[Tensor, "N W L"], lengths: Int[Tensor, " N"], size: int
) -> None:
    """Blocks n-grams: forbids each token that would repeat an n-gram of `size` tokens (`no_repeat_ngram_size`)."""
    if generated.size(2) < size:
        return
    starts = torch.arange(generated.size(2) - size + 1, device=generated.device)
    next_tokens = generated[:, :, size - 1 :]  # N W L-size+1: the token after the size - 1 tokens from each start
    is_repeat = (starts + size - 1 < lengths[:, None])[:, None, :].expand_as(next_tokens)
    if size > 1:
        ngrams = generated.unfold(2, size - 1, 1)[:, :, : len(starts)]
        is_repeat = is_repeat & (ngrams == _last(generated, lengths, size - 1)[:, :, None]).all(dim=-1)
    log_p.masked_fill_(_token_mask(log_p, next_tokens, is_repeat), -torch.inf)


def group_by_length(sequences: Sequence[Sequence[int]]) -> list[Int[Tensor, "_ _"]]:
    """Returns the sequences of each length, one a row."""
    groups: defaultdict[int, list[Sequence[int]]] = defaultdict(list)
    for sequence in sequences:
        groups[len(sequence)].append(sequence)
    return [torch.tensor(group) for group in groups.values()]


def forbid_sequences(
    log_p: Float[Tensor, "N W V"],
    generated: Int[Tensor, "N W L"],
    lengths: Int[Tensor, " N"],
    banned: Sequence[Int[Tensor, "_ _"]],
) -> None:
    """Forbids the last token of each banned sequence after the tokens before it (`bad_words_ids`)."""
    for sequences in banned:
        sequences = sequences.to(generated.device)
        before, last = sequences[:, :-1], sequences[:, -1]
        if (n_before := before.size(1)) <= generated.size(2):
            ends = _last(generated, lengths, n_before)[:, :, None]
            is_match = (ends == before).all(dim=-1) & (lengths >= n_before)[:, None, None]
            next_tokens = last.expand(*log_p.shape[:2], -1)
            log_p.masked_fill_(_token_mask(log_p, next_tokens, is_match), -torch.inf)


def forbid_early_eos(
    log_p: Float[Tensor, "N W V"],
    generated: Int[Tensor, "N W L"],
    lengths: Int[Tensor, " N"],
    min_tokens: int,
    eos_id: int,
) -> None:
    """Forbids EOS in sentences with fewer than `min_tokens` tokens."""
    log_p[:, :, eos_id].masked_fill_((lengths < min_tokens)[:, None], -torch.inf)


def force_prefixes(
    processed_log_p: Float[Tensor, "N W V"],
    log_p: Float[Tensor, "N W V"],
    lengths: Sequence[int],
    requests: Sequence[Request],
) -> None:
    """Forces the next token of the prefix (prefix-constrained decoding) until the prefix is complete."""
    for row, (length, request) in enumerate(zip(lengths, requests, strict=True)):
        if length < len(request.prefix):
            token = request.prefix[length]
            processed_log_p[row] = -torch.inf
            processed_log_p[row, :, token] = log_p[row, :, token]


def _token_mask(
    log_p: Float[Tensor, "N W V"], tokens: Int[Tensor, "N W n"], is_valid: Bool[Tensor, "..."]
) -> Bool[Tensor, "N W V"]:
    """Marks the vocabulary entries that are among the valid tokens; `is_valid` broadcasts to their shape."""
    ids = tokens.masked_fill(~is_valid, log_p.size(2))  # an extra id, dropped below, stands for invalid tokens
    mask = torch.zeros(*log_p.shape[:2], log_p.size(2) + 1, dtype=torch.bool, device=log_p.device)
    return mask.scatter_(2, ids, True)[:, :, :-1]


def _last(generated: Int[Tensor, "N W L"], lengths: Int[Tensor, " N"], n: int) -> Int[Tensor, "N W n"]:
    """Returns the last n tokens of each hypothesis; for a shorter one, its first n positions."""
    positions = (lengths[:, None] - n).clamp(min=0) + torch.arange(n, device=generated.device)
    return generated.gather(2, positions[:, None, :].expand(-1, generated.size(1), -1))
