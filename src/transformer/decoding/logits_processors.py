"""Rules on the next token: each looks at what was written and changes what candidates are worth.

A rule changes values, by which hypotheses are compared, and never scores, the model's own log-probabilities.
Axis letters are those of `transformer.decoding.candidates`; L is the room for tokens, of which each sentence has
written `lengths`.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.config import Request, Search

LogitsProcessor = Callable[[Tensor, Tensor, Tensor], None]
"""Changes values (N, W, V) in place, given the tokens written so far (N, W, L) and how many they are (N)."""


def make_logits_processors(search: Search, end: int) -> list[LogitsProcessor]:
    """The rules that a search has for all sentences, `end` being the token that ends one."""
    rules: list[LogitsProcessor] = []
    if search.repetition_penalty != 1:
        rules.append(partial(penalize_repetition, penalty=search.repetition_penalty))
    if search.no_repeat_ngram:
        rules.append(partial(forbid_repeated_ngrams, size=search.no_repeat_ngram))
    if search.banned:
        rules.append(partial(forbid_sequences, sequences=search.banned))
    if search.min_tokens and end >= 0:
        rules.append(partial(forbid_early_end, min_tokens=search.min_tokens, end=end))
    return rules


def penalize_repetition(
    values: Float[Tensor, "N W V"], written: Int[Tensor, "N W L"], lengths: Int[Tensor, " N"], penalty: float
) -> None:
    """Multiplies the log-probability of every token written already, see `Search.repetition_penalty`."""
    stands = torch.arange(written.size(2), device=written.device) < lengths[:, None]
    values.copy_(torch.where(_marked(values, written, stands[:, None]), values * penalty, values))


def forbid_repeated_ngrams(
    values: Float[Tensor, "N W V"], written: Int[Tensor, "N W L"], lengths: Int[Tensor, " N"], size: int
) -> None:
    """Forbids each token that would end a sequence of `size` tokens for the second time."""
    if written.size(2) < size:
        return
    starts = torch.arange(written.size(2) - size + 1, device=written.device)
    follows = written[:, :, size - 1 :]  # N W L-size+1: what came after the size - 1 tokens from each start
    repeats = (starts + size - 1 < lengths[:, None])[:, None, :].expand_as(follows)
    if size > 1:
        ngrams = written.unfold(2, size - 1, 1)[:, :, : len(starts)]
        repeats = repeats & (ngrams == _last(written, lengths, size - 1)[:, :, None]).all(dim=-1)
    values.masked_fill_(_marked(values, follows, repeats), -torch.inf)


def forbid_sequences(
    values: Float[Tensor, "N W V"],
    written: Int[Tensor, "N W L"],
    lengths: Int[Tensor, " N"],
    sequences: Sequence[Sequence[int]],
) -> None:
    """Forbids the last token of each sequence where the tokens before it stand already."""
    for *before, last in sequences:
        if len(before) > written.size(2):
            continue
        stands = (lengths >= len(before))[:, None]
        if before:
            expected = torch.tensor(before, device=written.device)
            stands = stands & (_last(written, lengths, len(before)) == expected).all(dim=-1)
        values[:, :, last].masked_fill_(stands, -torch.inf)


def forbid_early_end(
    values: Float[Tensor, "N W V"], written: Int[Tensor, "N W L"], lengths: Int[Tensor, " N"], min_tokens: int, end: int
) -> None:
    """Forbids the end of sentences with fewer than `min_tokens` tokens."""
    values[:, :, end].masked_fill_((lengths < min_tokens)[:, None], -torch.inf)


def force_prefixes(
    values: Float[Tensor, "N W V"], log_p: Float[Tensor, "N W V"], lengths: Sequence[int], requests: Sequence[Request]
) -> None:
    """Leaves a sentence whose prefix is not complete the next token of it alone."""
    for row, (length, request) in enumerate(zip(lengths, requests, strict=True)):
        if length < len(request.prefix):
            token = request.prefix[length]
            values[row] = -torch.inf
            values[row, :, token] = log_p[row, :, token]


def _marked(
    values: Float[Tensor, "N W V"], tokens: Int[Tensor, "N W n"], counts: Bool[Tensor, "..."]
) -> Bool[Tensor, "N W V"]:
    """True for the tokens that count; `counts` broadcasts to their shape."""
    places = tokens.masked_fill(~counts, values.size(2))  # one place more, for those that do not
    marked = torch.zeros(*values.shape[:2], values.size(2) + 1, dtype=torch.bool, device=values.device)
    return marked.scatter_(2, places, True)[:, :, :-1]


def _last(written: Int[Tensor, "N W L"], lengths: Int[Tensor, " N"], n: int) -> Int[Tensor, "N W n"]:
    """The last n tokens of each hypothesis; of a shorter one, its first n places."""
    places = (lengths[:, None] - n).clamp(min=0) + torch.arange(n, device=written.device)
    return written.gather(2, places[:, None, :].expand(-1, written.size(1), -1))
