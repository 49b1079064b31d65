"""Logits processors: functions that change the scores of the next token, given the tokens so far.

They correspond to the `LogitsProcessor` classes of transformers, and get the same scores: logits for greedy search and
sampling, log-probabilities for a beam. There is one difference: they change only the processed log-probabilities, by
which hypotheses are ranked. The scores of hypotheses remain the model's own log-probabilities. Axis letters are those
of `transformer.decoding.candidates`.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.request import Request
from transformer.options.search import Search


@dataclass(frozen=True)
class History:
    """The tokens that processors look at: the prompt of a language model, and what each hypothesis has generated.

    Attributes:
        tokens: Tokens, of which the first `lengths` of a sentence are valid.
        lengths: Number of tokens of each sentence.
        n_generated: Number of those that were generated.
    """

    tokens: Int[Tensor, "N W L"]
    lengths: Int[Tensor, " N"]
    n_generated: Int[Tensor, " N"]

    @classmethod
    def of(
        cls, generated: Int[Tensor, "N W L"], n_generated: Int[Tensor, " N"], requests: Sequence[Request]
    ) -> "History":
        """Returns the generated tokens behind the prompts of the requests."""
        longest = max(len(request.prompt) for request in requests)
        if not longest:
            return cls(generated, n_generated, n_generated)
        tokens = F.pad(generated, (0, longest))
        for row, request in enumerate(requests):
            n_prompt = len(request.prompt)
            tokens[row, :, n_prompt : n_prompt + generated.size(2)] = generated[row]
            tokens[row, :, :n_prompt] = torch.tensor(request.prompt)
        n_prompt = torch.tensor([len(request.prompt) for request in requests], device=generated.device)
        return cls(tokens, n_prompt + n_generated, n_generated)


LogitsProcessor = Callable[[Tensor, History], None]
"""Changes the scores of the next token (N, W, V) in place, given the tokens before it."""


def make_logits_processors(search: Search, ends: tuple[int, ...]) -> list[LogitsProcessor]:
    """Creates the processors that a search applies to all sentences; `ends` are the tokens that end one."""
    processors: list[LogitsProcessor] = []
    if search.repetition_penalty is not None and search.penalizes_repetition:
        processors.append(partial(penalize_repetition, penalty=search.repetition_penalty))
    if search.no_repeat_ngram:
        processors.append(partial(forbid_repeated_ngrams, size=search.no_repeat_ngram))
    if search.banned:
        processors.append(partial(forbid_sequences, banned=group_by_length(search.banned)))
    if search.min_tokens and ends:
        processors.append(partial(forbid_early_eos, min_tokens=search.min_tokens, ends=ends))
    return processors


def penalize_repetition(scores: Float[Tensor, "N W V"], history: History, penalty: float) -> None:
    """Applies a repetition penalty to every token so far, see `Search.repetition_penalty` (Keskar et al. 2019)."""
    is_valid = torch.arange(history.tokens.size(2), device=scores.device) < history.lengths[:, None]
    penalized = torch.where(scores < 0, scores * penalty, scores / penalty)
    scores.copy_(torch.where(_token_mask(scores, history.tokens, is_valid[:, None]), penalized, scores))


def forbid_repeated_ngrams(scores: Float[Tensor, "N W V"], history: History, size: int) -> None:
    """Blocks n-grams: forbids each token that would repeat an n-gram of `size` tokens (`no_repeat_ngram_size`)."""
    tokens, lengths = history.tokens, history.lengths
    if tokens.size(2) < size:
        return
    starts = torch.arange(tokens.size(2) - size + 1, device=tokens.device)
    next_tokens = tokens[:, :, size - 1 :]  # N W L-size+1: the token after the size - 1 tokens from each start
    is_repeat = (starts + size - 1 < lengths[:, None])[:, None, :].expand_as(next_tokens)
    if size > 1:
        ngrams = tokens.unfold(2, size - 1, 1)[:, :, : len(starts)]
        is_repeat = is_repeat & (ngrams == _last(tokens, lengths, size - 1)[:, :, None]).all(dim=-1)
    scores.masked_fill_(_token_mask(scores, next_tokens, is_repeat), -torch.inf)


def group_by_length(sequences: Sequence[Sequence[int]]) -> list[Int[Tensor, "_ _"]]:
    """Returns the sequences of each length, one a row."""
    groups: defaultdict[int, list[Sequence[int]]] = defaultdict(list)
    for sequence in sequences:
        groups[len(sequence)].append(sequence)
    return [torch.tensor(group) for group in groups.values()]


def forbid_sequences(scores: Float[Tensor, "N W V"], history: History, banned: Sequence[Int[Tensor, "_ _"]]) -> None:
    """Forbids the last token of each banned sequence after the tokens before it (`bad_words_ids`)."""
    for sequences in banned:
        sequences = sequences.to(scores.device)
        before, last = sequences[:, :-1], sequences[:, -1]
        if (n_before := before.size(1)) <= history.tokens.size(2):
            ends = _last(history.tokens, history.lengths, n_before)[:, :, None]
            is_match = (ends == before).all(dim=-1) & (history.lengths >= n_before)[:, None, None]
            next_tokens = last.expand(*scores.shape[:2], -1)
            scores.masked_fill_(_token_mask(scores, next_tokens, is_match), -torch.inf)


def forbid_early_eos(scores: Float[Tensor, "N W V"], history: History, min_tokens: int, ends: tuple[int, ...]) -> None:
    """Forbids the end of sentences that have generated fewer than `min_tokens` tokens."""
    is_early = (history.n_generated < min_tokens)[:, None]
    for end in ends:
        scores[:, :, end].masked_fill_(is_early, -torch.inf)


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
    scores: Float[Tensor, "N W V"], tokens: Int[Tensor, "N W n"], is_valid: Bool[Tensor, "..."]
) -> Bool[Tensor, "N W V"]:
    """Marks the vocabulary entries that are among the valid tokens; `is_valid` broadcasts to their shape."""
    ids = tokens.masked_fill(~is_valid, scores.size(2))  # an extra id, dropped below, stands for invalid tokens
    mask = torch.zeros(*scores.shape[:2], scores.size(2) + 1, dtype=torch.bool, device=scores.device)
    return mask.scatter_(2, ids, True)[:, :, :-1]


def _last(tokens: Int[Tensor, "N W L"], lengths: Int[Tensor, " N"], n: int) -> Int[Tensor, "N W n"]:
    """Returns the last n tokens of each hypothesis; for a shorter one, its first n positions."""
    positions = (lengths[:, None] - n).clamp(min=0) + torch.arange(n, device=tokens.device)
    return tokens.gather(2, positions[:, None, :].expand(-1, tokens.size(1), -1))
