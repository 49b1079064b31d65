"""Search over token ids with any `GenerativeModel`: sentences enter the batch, are searched together, and leave it.

At every step each hypothesis is continued with each token. Of all continuations of a sentence, those among the best
`beam` that are EOS have ended; the best `beam` of the others are followed. A sentence that is done leaves at once.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.beam_state import BeamState, SentenceState, end_of
from transformer.decoding.candidates import Candidates, TopK, expand, log_probabilities, prune, spread, top_k_processed
from transformer.decoding.config import Request, Search
from transformer.decoding.constrained import (
    Constraint,
    allocate_banks,
    forbidden_continuations,
    next_constraint_tokens,
    option,
)
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.logits_processors import LogitsProcessor, force_prefixes, make_logits_processors
from transformer.decoding.sampling import Sampling, draw
from transformer.decoding.shortlist import ShortlistModel, SupportsOutputSubset, best_listed, shortlisted
from transformer.errors import ConfigError
from transformer.interfaces import GenerativeModel, State
from transformer.kernels import PackedMatrix, best_tokens
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokenIds


def search_each(
    model: GenerativeModel,
    requests: Iterable[Request],
    search: Search,
    *,
    batch_tokens: int = 4096,
    refill_below: float = 0.0,
    device: torch.device | None = None,
    special_tokens: SpecialTokenIds = DEFAULT_SPECIAL_TOKENS,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Searches for every request; yields its index and up to `n_best` hypotheses, best first, as they are found.

    Hypotheses that ended in EOS come first, by value / penalty(|Y|), then those that were cut at the limit.

    Args:
        model: in evaluation mode.
        requests: read as far ahead as one batch needs. Neighbours of like length waste least.
        search: how.
        batch_tokens: most of sentences x hypotheses of each x tokens of the longest source at a time.
        refill_below: waiting sentences enter once less than this share of the batch is left; 0 waits for the last.
            Among sentences of like length, joining costs more than it gains (`docs/experiments/decoding-speed.md`).
        device: of the model; None is the CPU.
        special_tokens: which of the model's tokens end a sentence, and which are never written.

    Raises:
        ConfigError: a source or a limit exceeds the model's positions.

    Source: Graves 2012, "Sequence Transduction with Recurrent Neural Networks", Sec. 2.5; Vaswani et al. 2017,
    Sec. 6.1.
    """
    waiting = RequestQueue(enumerate(requests), batch_tokens // search.beam, refill_below)
    table: BeamState | None = None
    rules = make_logits_processors(search, end_of(special_tokens))
    while True:
        done = list[SentenceState]()
        with inference():
            while not done:
                if newcomers := waiting.admit(table):
                    entered = BeamState.begin(model, newcomers, search, device or torch.device("cpu"), special_tokens)
                    table = entered if table is None else table.join(entered)
                if table is None:
                    return
                beam_indices = advance(model, table, search, rules)
                done = [sentence for sentence in table.sentences if sentence.done]
                table = table.leave(beam_indices)
        for sentence in done:
            yield sentence.index, sentence.hypotheses(search)


def search_all(
    model: GenerativeModel,
    requests: Sequence[Request],
    search: Search,
    *,
    batch_tokens: int = 4096,
    refill_below: float = 0.0,
    special_tokens: SpecialTokenIds = DEFAULT_SPECIAL_TOKENS,
) -> list[list[Hypothesis]]:
    """As `search_each`, in the order of the requests, on the CPU."""
    found = dict(
        search_each(
            model, requests, search, batch_tokens=batch_tokens, refill_below=refill_below, special_tokens=special_tokens
        )
    )
    return [found[index] for index in range(len(requests))]


def write_each(
    model: GenerativeModel,
    request: Request,
    search: Search,
    special_tokens: SpecialTokenIds = DEFAULT_SPECIAL_TOKENS,
    device: torch.device | None = None,
) -> Iterator[int]:
    """Yields the tokens of one request as they are chosen, without the one that ends it.

    Args:
        model: in evaluation mode.
        request: what is to be written.
        search: of one hypothesis: greedy, or drawing a single sample.
        special_tokens: as in `search_each`.
        device: of the model; None is the CPU.

    Raises:
        ConfigError: there are several hypotheses, of which none is chosen before the end.
    """
    if search.beam != 1:
        raise ConfigError(f"beam={search.beam}: what is written is known at the end alone; choose 1 to see it grow")
    rules = make_logits_processors(search, end_of(special_tokens))
    with inference():
        table = BeamState.begin(model, [(0, request)], search, device or torch.device("cpu"), special_tokens)
    (sentence,) = table.sentences
    while not sentence.done:
        with inference():
            advance(model, table, search, rules)
        if not any(sentence.ended):
            yield int(table.tokens[0, 0])


def inference() -> AbstractContextManager[object]:
    """Nothing is kept for gradients; what computes so already just goes on.

    Each `torch.inference_mode` is one more object in a table of all objects of torch, at a place that differs: where
    many are made, all pages of that table are written to by and by, and forked processes share none of them any more.
    """
    return nullcontext() if torch.is_inference_mode_enabled() else torch.inference_mode()


def advance(
    model: GenerativeModel, table: BeamState, search: Search, rules: Sequence[LogitsProcessor]
) -> Int[Tensor, "N W"]:
    """Writes one more token of every hypothesis; returns which hypothesis each of those that follow continues."""
    if is_plain(table, search):
        followed = choose_plain(model, table, search)
    else:
        logits, table.state = model.step(table.tokens.flatten(), table.state)
        logits, listed = logits.unflatten(0, table.tokens.shape), shortlisted(table.state)
        logits = logits if listed is None else spread(logits, listed.ids, listed.vocab_size)
        log_p = log_probabilities(logits, table.special_tokens.suppressed_ids(allow_unknown=search.allow_unknown))
        worth = apply_logits_processors(log_p, table, rules)
        if search.sampling:
            followed = sample(table, log_p, worth, search.sampling)
        else:
            followed = choose(table, log_p, worth, search)
    table.follow(followed, search)
    return followed.beam_indices


def is_plain(table: BeamState, search: Search) -> bool:
    """Whether the model's most probable tokens are all that needs to be known, now that no rule weighs others.

    A minimum of tokens is kept by leaving out EOS, as long as all sentences are on the same side of it.
    """
    if not search.follows_the_model:
        return False
    is_early = table.sentences[0].length < search.min_tokens
    return not has_prefix(table) and all(
        not sentence.request.required and (sentence.length < search.min_tokens) is is_early
        for sentence in table.sentences
    )


def choose_plain(model: GenerativeModel, table: BeamState, search: Search) -> Candidates:
    """As `choose` after a step of the model, from its most probable tokens alone."""
    is_early = table.sentences[0].length < search.min_tokens
    never = (
        *table.special_tokens.suppressed_ids(allow_unknown=search.allow_unknown),
        *((table.end_id,) if is_early and table.end_id >= 0 else ()),
    )
    offered, table.state = top_k_tokens(model, table.tokens, table.state, 2 * search.beam, never)
    candidates = expand(offered, table.scores, table.values, 2 * search.beam)
    table.end(candidates, slice(0, search.beam), 0)
    return prune(candidates, search.beam, table.end_id)


def top_k_tokens(
    model: GenerativeModel, tokens: Int[Tensor, "N W"], state: Any, k: int, never: tuple[int, ...]
) -> tuple[TopK, State]:
    """The k most probable tokens after those of each hypothesis, where no rule weighs others; and the state after them.

    Args:
        model: which may rank tokens without writing down all logits.
        tokens: the last ones.
        state: before them.
        k: how many; what there are too few of has the log-probability -inf, or is left out.
        never: tokens that are left out.
    """
    projection = cast(SupportsOutputSubset, model).output_subset(None) if hasattr(model, "output_subset") else None
    if isinstance(model, ShortlistModel):
        log_p, best, state = model.step_best(
            tokens, state, k, token_mask(never, model.shortlist.vocab_size, tokens.device)
        )
    elif isinstance(projection, PackedMatrix):
        size = projection.columns
        x, state = cast(SupportsOutputSubset, model).step_hidden(tokens.flatten(), state)
        log_p, best = projection.best(x, min(k, size), token_mask(never, size, x.device))
    else:
        logits, state = model.step(tokens.flatten(), state)
        if (lists := shortlisted(state)) is not None:
            log_p, best = best_listed(logits, lists.ids, k, token_mask(never, lists.vocab_size, logits.device))
        else:
            log_p, best = best_tokens(logits, min(k, logits.size(1)), token_mask(never, logits.size(1), logits.device))
    log_p, best = (each.view(*tokens.shape, -1) for each in (log_p, best))
    return TopK(best, log_p, log_p), state


@lru_cache(maxsize=8)
def token_mask(tokens: tuple[int, ...], vocabulary: int, device: torch.device) -> Bool[Tensor, " V"]:
    """True for some of all tokens."""
    return torch.zeros(vocabulary, dtype=torch.bool, device=device).index_fill_(
        0, torch.tensor(tokens, dtype=torch.long, device=device), True
    )


def has_prefix(table: BeamState) -> bool:
    """Whether the next token of a sentence is given."""
    return any(len(sentence.request.prefix) > sentence.length for sentence in table.sentences)


def apply_logits_processors(
    log_p: Float[Tensor, "N W V"], table: BeamState, rules: Sequence[LogitsProcessor]
) -> Float[Tensor, "N W V"]:
    """What each token is worth under the rules; `log_p` itself where there are none."""
    requests = [sentence.request for sentence in table.sentences]
    forbidden = list(_of_phrases(table, forbidden_continuations))
    if not rules and not forbidden and not has_prefix(table):
        return log_p
    worth = log_p.clone()
    for rule in rules:
        rule(worth, table.written, table.lengths)
    if rules:  # none of which keeps out what must stand
        for row, hypothesis, tokens in _of_phrases(table, next_constraint_tokens):
            worth[row, hypothesis, tokens] = log_p[row, hypothesis, tokens]
    for row, hypothesis, tokens in forbidden:
        worth[row, hypothesis, tokens] = -torch.inf
    if has_prefix(table):
        force_prefixes(worth, log_p, [sentence.length for sentence in table.sentences], requests)
    return worth


def _of_phrases(
    table: BeamState, tokens_of: Callable[[Sequence[int], Sequence[Constraint]], Iterable[int]]
) -> Iterator[tuple[int, int, list[int]]]:
    """What `tokens_of` finds for each hypothesis of a sentence that must hold phrases: row, hypothesis, tokens."""
    for row, sentence in enumerate(table.sentences):
        if sentence.request.required:
            for hypothesis, tokens in enumerate(table.written[row].tolist()):
                if found := list(tokens_of(tokens[: sentence.length], sentence.request.required)):
                    yield row, hypothesis, found


def choose(
    table: BeamState, log_p: Float[Tensor, "N W V"], worth: Float[Tensor, "N W V"], search: Search
) -> Candidates:
    """The best hypotheses to follow, group by group; those that end are kept as ended."""
    size = search.beam // search.groups
    followed: list[Candidates] = []
    for group in range(search.groups):
        rows = slice(group * size, (group + 1) * size)
        own_log_p, scores = log_p[:, rows], table.scores[:, rows]
        own_worth = own_log_p if worth is log_p else worth[:, rows]
        values = scores if table.values is table.scores else table.values[:, rows]
        if followed and search.diversity:
            own_worth = own_worth - search.diversity * _times_chosen(followed, log_p.size(2))[:, None]
        offered = top_k_processed(own_log_p, own_worth, 2 * size)
        candidates = expand(offered, scores, values, 2 * size, first_beam_index=rows.start)
        bound = [row for row, sentence in enumerate(table.sentences) if sentence.request.required]
        table.end(candidates, slice(0, size), group, except_rows=bound)
        followed.append(prune(candidates, size, table.end_id))
        for row in bound:
            _hold_required(table, row, log_p, worth, candidates, followed[-1])
    return Candidates.join(followed)


def _hold_required(
    table: BeamState,
    row: int,
    log_p: Float[Tensor, "N W V"],
    worth: Float[Tensor, "N W V"],
    candidates: Candidates,
    followed: Candidates,
) -> None:
    """Chooses anew what to follow of a sentence that must hold phrases; overwrites its row of `followed`."""
    sentence, width = table.sentences[row], log_p.size(1)
    written = [tokens[: sentence.length] for tokens in table.written[row].tolist()]
    pairs = set(zip(candidates.beam_indices[row].tolist(), candidates.tokens[row].tolist(), strict=True))
    for beam_index, best in enumerate(worth[row].argmax(dim=-1).tolist()):
        wanted = set(next_constraint_tokens(written[beam_index], sentence.request.required)) or {table.end_id} - {-1}
        pairs |= {(beam_index, token) for token in (best, *wanted)}
    beam_indices, tokens = torch.tensor(sorted(pairs), device=worth.device).unbind(1)
    values = table.values[row, beam_indices] + worth[row, beam_indices, tokens]
    scores = table.scores[row, beam_indices] + log_p[row, beam_indices, tokens]
    found = [
        option(value, beam_index, token, written[beam_index], sentence.request.required, ends=token == table.end_id)
        for value, beam_index, token in zip(values.tolist(), beam_indices.tolist(), tokens.tolist(), strict=True)
        if value != -torch.inf
    ]
    chosen, ended = allocate_banks([each for each in found if each is not None], width)
    score_of = dict(zip(zip(beam_indices.tolist(), tokens.tolist(), strict=True), scores.tolist(), strict=True))
    for each in ended:
        score = score_of[each.beam_index, each.token]
        sentence.ended[0].append(Hypothesis(written[each.beam_index], score, finished=True, value=each.value))
    followed.values[row] = followed.scores[row] = -torch.inf
    for place, each in enumerate(chosen):
        followed.beam_indices[row, place], followed.tokens[row, place] = each.beam_index, each.token
        followed.values[row, place] = each.value
        followed.scores[row, place] = score_of[each.beam_index, each.token]


def _times_chosen(followed: Sequence[Candidates], vocabulary: int) -> Float[Tensor, "N V"]:
    """How often the groups before follow each token."""
    tokens = torch.cat([group.tokens for group in followed], dim=1)
    alive = torch.cat([group.values for group in followed], dim=1) != -torch.inf
    return alive.new_zeros(len(tokens), vocabulary, dtype=torch.float32).scatter_add_(1, tokens, alive.float())


def sample(
    table: BeamState, log_p: Float[Tensor, "N W V"], worth: Float[Tensor, "N W V"], sampling: Sampling
) -> Candidates:
    """One drawn token a hypothesis; those that draw EOS have ended."""
    assert table.uniform is not None
    n, width, _ = log_p.shape
    steps = table.lengths[:, None, None].expand(-1, width, 1)
    tokens = draw(worth, table.uniform.gather(2, steps)[:, :, 0], sampling)
    scores, values = (
        sums + added.gather(2, tokens[:, :, None])[:, :, 0]
        for sums, added in ((table.scores, log_p), (table.values, worth))
    )
    beam_indices = torch.arange(width, device=tokens.device).expand(n, -1)
    table.end(Candidates(values, scores, beam_indices, tokens), slice(0, width), 0)
    return Candidates(values.masked_fill(tokens == table.end_id, -torch.inf), scores, beam_indices, tokens)


@dataclass
class RequestQueue:
    """Requests that have not entered.

    Attributes:
        requests: numbered, not yet read.
        most_tokens: of sentences x tokens of the longest source at a time.
        refill_below: share of it below which requests enter beside others.
        ahead: read, but not entered.
    """

    requests: Iterator[tuple[int, Request]]
    most_tokens: int
    refill_below: float
    ahead: deque[tuple[int, Request]] = field(default_factory=deque[tuple[int, Request]])

    def admit(self, table: BeamState | None) -> list[tuple[int, Request]]:
        """The next requests, as many as there is room for; none while most of the room is taken."""
        taken = [len(sentence.request.source) for sentence in table.sentences] if table else []
        longest, n = max(taken, default=0), len(taken)
        if n and n * longest >= self.refill_below * self.most_tokens:
            return []
        admitted: list[tuple[int, Request]] = []
        while self.ahead or self._read():
            longest = max(longest, len(self.ahead[0][1].source))
            if n and (n + 1) * longest > self.most_tokens:
                break
            admitted.append(self.ahead.popleft())
            n += 1
        return admitted

    def _read(self) -> bool:
        self.ahead.extend(islice(self.requests, 1))
        return bool(self.ahead)
