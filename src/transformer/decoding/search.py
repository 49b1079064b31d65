"""Batched beam search, greedy search and sampling with any `GenerativeModel`.

At every step, each hypothesis is continued with each token. Of all continuations of a sentence, those among the best
`beam` that are EOS are finished, and the best `beam` of the others stay active. A sentence leaves the batch as soon as
it is done, and waiting sentences may take its place.

The parts of `SequenceGenerator` of fairseq or `generate` of transformers are here: `decode_step` is the body of the
loop, `SearchModel.top_k` the step of the model, `apply_logits_processors` the list of processors. Hypotheses are ranked
by `expand` and `prune`. `BeamState` stores them, appends their tokens and drops the sentences that are done.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.decoding.beam_state import BeamState, SentenceState
from transformer.decoding.candidates import (
    Candidates,
    expand,
    is_end,
    log_probabilities,
    n_candidates,
    prune,
    top_k_processed,
)
from transformer.decoding.compiled_search import CompiledSearch
from transformer.decoding.constrained import (
    Constraint,
    allocate_banks,
    constrained_candidate,
    forbidden_continuations,
    next_constraint_tokens,
)
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.logits_processors import History, LogitsProcessor, force_prefixes, make_logits_processors
from transformer.decoding.request import Request
from transformer.decoding.request_queue import RequestQueue
from transformer.decoding.sampling import draw
from transformer.decoding.search_model import SearchModel, as_search_model
from transformer.errors import ConfigError
from transformer.interfaces import GenerativeModel
from transformer.options.search import Sampling, Search
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokenIds

LogP = Float[Tensor, "N W V"]


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
    """Yields the index of each request with up to `n_best` hypotheses, best first, as soon as it is done.

    Hypotheses that ended in EOS come first, by ranking_score / length_penalty(|Y|), then those truncated at the limit.

    Args:
        model: Model in evaluation mode.
        requests: Requests, read only as far ahead as one batch needs. Similar lengths of neighbours reduce padding.
        search: Options of the search.
        batch_tokens: Maximum of sentences x hypotheses per sentence x tokens of the longest source in a batch.
        refill_below: Fraction of the batch below which waiting sentences join; 0 waits until the batch is empty.
            Among sentences of similar length, joining costs more than it gains (`docs/experiments/decoding-speed.md`).
        device: Device of the model; None is the CPU.
        special_tokens: Special tokens of the model: those that end a sentence, and those that are never generated.

    Raises:
        ConfigError: A source or a limit exceeds the model's positions.

    Source: Graves 2012, "Sequence Transduction with Recurrent Neural Networks", Sec. 2.5; Vaswani et al. 2017,
    Sec. 6.1.
    """
    queue = RequestQueue(enumerate(requests), batch_tokens // search.beam, refill_below)
    search_model = as_search_model(model)
    compiled_search = None if refill_below else CompiledSearch.of(search_model, search, special_tokens)
    while admitted := queue.admit(None):
        if compiled_search is not None and compiled_search.supports(request for _, request in admitted):
            sentences = compiled_search.run(admitted)
        else:
            sentences = _search_step_by_step(
                search_model, admitted, queue, search, device or torch.device("cpu"), special_tokens
            )
        for sentence in sentences:
            yield sentence.index, sentence.hypotheses(search)


def _search_step_by_step(
    model: SearchModel,
    admitted: Sequence[tuple[int, Request]],
    queue: RequestQueue,
    search: Search,
    device: torch.device,
    special_tokens: SpecialTokenIds,
) -> Iterator[SentenceState]:
    """Yields the sentences of a batch, and of those that join it, as soon as they are done; see `search_each`.

    Args:
        model: Model in evaluation mode.
        admitted: First sentences of the batch.
        queue: Sentences that may join.
        search: Options of the search.
        device: Device of the model.
        special_tokens: Special tokens of the model.
    """
    processors = make_logits_processors(search, special_tokens.ends)
    with ensure_inference_mode():
        beams: BeamState | None = BeamState.begin(model, admitted, search, device, special_tokens)
    while beams is not None:
        done = list[SentenceState]()
        with ensure_inference_mode():
            while beams is not None and not done:
                if joining := queue.admit(beams):
                    beams = beams.join(BeamState.begin(model, joining, search, device, special_tokens))
                done, beams = decode_step(model, beams, search, processors)
        yield from done


def search_all(
    model: GenerativeModel,
    requests: Sequence[Request],
    search: Search,
    *,
    batch_tokens: int = 4096,
    refill_below: float = 0.0,
    device: torch.device | None = None,
    special_tokens: SpecialTokenIds = DEFAULT_SPECIAL_TOKENS,
) -> list[list[Hypothesis]]:
    """Same as `search_each`, but returns the results in the order of the requests."""
    results = dict(
        search_each(
            model,
            requests,
            search,
            batch_tokens=batch_tokens,
            refill_below=refill_below,
            device=device,
            special_tokens=special_tokens,
        )
    )
    return [results[index] for index in range(len(requests))]


def stream_tokens(
    model: GenerativeModel,
    request: Request,
    search: Search,
    special_tokens: SpecialTokenIds = DEFAULT_SPECIAL_TOKENS,
    device: torch.device | None = None,
) -> Iterator[int]:
    """Yields the tokens of one request as they are generated, without EOS.

    Args:
        model: Model in evaluation mode.
        request: Request to answer.
        search: Options with a beam of 1: greedy search, or a single sample.
        special_tokens: Special tokens of the model, as in `search_each`.
        device: Device of the model; None is the CPU.

    Raises:
        ConfigError: The beam is wider than 1, so that the best hypothesis is known only at the end.
    """
    if search.beam != 1:
        raise ConfigError(f"beam={search.beam} cannot stream, since the best hypothesis is known last; choose 1")
    processors = make_logits_processors(search, special_tokens.ends)
    search_model, done = as_search_model(model), list[SentenceState]()
    with ensure_inference_mode():
        beams = BeamState.begin(search_model, [(0, request)], search, device or torch.device("cpu"), special_tokens)
    (sentence,) = beams.sentences
    while not done:
        with ensure_inference_mode():
            done, _ = decode_step(search_model, beams, search, processors)
        if not any(sentence.finished):
            yield int(beams.tokens[0, 0])


def ensure_inference_mode() -> AbstractContextManager[object]:
    """Returns a context manager that enables inference mode, unless it is enabled already.

    Each `torch.inference_mode` registers one more object in a table of torch, at varying addresses. If many are
    created, all memory pages of that table are gradually written to, and forked processes no longer share any of them.
    """
    return nullcontext() if torch.is_inference_mode_enabled() else torch.inference_mode()


def decode_step(
    model: SearchModel, beams: BeamState, search: Search, processors: Sequence[LogitsProcessor]
) -> tuple[list[SentenceState], BeamState | None]:
    """Appends one token to every active hypothesis.

    Returns:
        The sentences that are done, and the state of the others; None if no sentence remains.
    """
    if uses_raw_logits(beams, search):
        active = select_from_raw_logits(model, beams, search)
    else:
        logits, beams.state = model.step(beams.tokens.flatten(), beams.state)
        logits = logits.unflatten(0, beams.tokens.shape)
        log_p = log_probabilities(logits, beams.special_tokens.suppressed_ids(allow_unknown=search.allow_unknown))
        is_penalized = search.penalizes_repetition and (search.beam == 1 or search.sampling is not None)
        processed_log_p = apply_logits_processors(log_p, beams, processors, logits if is_penalized else None)
        if search.sampling:
            active = sample_candidates(beams, log_p, processed_log_p, search.sampling)
        else:
            active = select_candidates(beams, log_p, processed_log_p, search)
    return beams.advance(active, search)


def uses_raw_logits(beams: BeamState, search: Search) -> bool:
    """Whether this step uses the raw logits, because no logits processor changes them.

    A minimum number of tokens is enforced by excluding EOS, if all sentences are below it or none is.
    """
    if not search.ranks_by_log_probability:
        return False
    is_early = beams.sentences[0].length < search.min_tokens
    return not is_forcing_prefix(beams) and all(
        not sentence.request.required and (sentence.length < search.min_tokens) is is_early
        for sentence in beams.sentences
    )


def select_from_raw_logits(model: SearchModel, beams: BeamState, search: Search) -> Candidates:
    """Steps the model and selects candidates from its raw logits; same result as `select_candidates`."""
    is_early = beams.sentences[0].length < search.min_tokens
    early_ends = beams.ends if is_early else ()
    never = (*beams.special_tokens.suppressed_ids(allow_unknown=search.allow_unknown), *early_ends)
    k = n_candidates(search.beam, beams.ends)
    top_k, beams.state = model.top_k(beams.tokens, beams.state, k, never)
    candidates = expand(top_k, beams.scores, beams.ranking_scores, k)
    beams.collect_finished(candidates, slice(0, search.beam), 0)
    return prune(candidates, search.beam, beams.ends)


def is_forcing_prefix(beams: BeamState) -> bool:
    """Whether the next token of some sentence is forced by its prefix."""
    return any(len(sentence.request.prefix) > sentence.length for sentence in beams.sentences)


def apply_logits_processors(
    log_p: LogP,
    beams: BeamState,
    processors: Sequence[LogitsProcessor],
    logits: Float[Tensor, "N W V"] | None = None,
) -> LogP:
    """Returns the processed log-probabilities; `log_p` itself if nothing applies.

    Constraints and prefixes take precedence: no processor forbids a token that they need.

    Args:
        log_p: Log-probabilities of the next token.
        beams: State of the search.
        processors: Processors to apply.
        logits: Logits, if the processors are to change these; the result then differs from log-probabilities by a
            constant.
    """
    requests = [sentence.request for sentence in beams.sentences]
    forbidden = list(_constraint_tokens(beams, forbidden_continuations))
    if not processors and not forbidden and not is_forcing_prefix(beams):
        return log_p
    processed_log_p = log_p.clone()
    if processors:
        shift = 0.0 if logits is None else logits.float().logsumexp(dim=-1, keepdim=True)
        processed_log_p += shift  # log-probabilities are logits without their logarithm of a sum
        history = History.of(beams.generated, beams.lengths, requests)
        for process in processors:
            process(processed_log_p, history)
        processed_log_p -= shift
        for row, hypothesis, tokens in _constraint_tokens(beams, next_constraint_tokens):
            processed_log_p[row, hypothesis, tokens] = log_p[row, hypothesis, tokens]
    for row, hypothesis, tokens in forbidden:
        processed_log_p[row, hypothesis, tokens] = -torch.inf
    if is_forcing_prefix(beams):
        force_prefixes(processed_log_p, log_p, [sentence.length for sentence in beams.sentences], requests)
    return processed_log_p


def _constraint_tokens(
    beams: BeamState, tokens_of: Callable[[Sequence[int], Sequence[Constraint]], Iterable[int]]
) -> Iterator[tuple[int, int, list[int]]]:
    """Yields row, hypothesis and the tokens that `tokens_of` returns, for each hypothesis with constraints."""
    for row, sentence in enumerate(beams.sentences):
        if sentence.request.required:
            for hypothesis, generated in enumerate(beams.generated[row].tolist()):
                if tokens := list(tokens_of(generated[: sentence.length], sentence.request.required)):
                    yield row, hypothesis, tokens


def select_candidates(beams: BeamState, log_p: LogP, processed_log_p: LogP, search: Search) -> Candidates:
    """Selects the hypotheses that stay active, group by group, and stores those that finish."""
    size = search.beam // search.groups
    active: list[Candidates] = []
    for group in range(search.groups):
        columns = slice(group * size, (group + 1) * size)
        group_log_p, scores = log_p[:, columns], beams.scores[:, columns]
        group_processed = group_log_p if processed_log_p is log_p else processed_log_p[:, columns]
        ranking_scores = scores if beams.ranking_scores is beams.scores else beams.ranking_scores[:, columns]
        if active and search.diversity:
            group_processed = group_processed - search.diversity * _token_counts(active, log_p.size(2))[:, None]
        k = n_candidates(size, beams.ends)
        top_k = top_k_processed(group_log_p, group_processed, k)
        candidates = expand(top_k, scores, ranking_scores, k, first_beam_index=columns.start)
        constrained = [row for row, sentence in enumerate(beams.sentences) if sentence.request.required]
        beams.collect_finished(candidates, slice(0, size), group, except_rows=constrained)
        active.append(prune(candidates, size, beams.ends))
        for row in constrained:
            _select_constrained(beams, row, log_p, processed_log_p, candidates, active[-1])
    return Candidates.join(active)


def _select_constrained(
    beams: BeamState, row: int, log_p: LogP, processed_log_p: LogP, candidates: Candidates, active: Candidates
) -> None:
    """Selects the candidates of a sentence with constraints, and overwrites its row of `active`.

    Candidates are the best continuations overall, the best of each hypothesis, and those that a constraint needs next.
    """
    sentence, width = beams.sentences[row], log_p.size(1)
    constraints = sentence.request.required
    generated = [tokens[: sentence.length] for tokens in beams.generated[row].tolist()]
    pairs = set(zip(candidates.beam_indices[row].tolist(), candidates.tokens[row].tolist(), strict=True))
    for beam_index, best in enumerate(processed_log_p[row].argmax(dim=-1).tolist()):
        needed = set(next_constraint_tokens(generated[beam_index], constraints)) or beams.ends
        pairs |= {(beam_index, token) for token in (best, *needed)}
    beam_indices, tokens = torch.tensor(sorted(pairs), device=processed_log_p.device).unbind(1)
    ranking_scores = beams.ranking_scores[row, beam_indices] + processed_log_p[row, beam_indices, tokens]
    scores = beams.scores[row, beam_indices] + log_p[row, beam_indices, tokens]
    columns = ranking_scores.tolist(), beam_indices.tolist(), tokens.tolist()
    options = [
        constrained_candidate(value, beam_index, token, generated[beam_index], constraints, ends=token in beams.ends)
        for value, beam_index, token in zip(*columns, strict=True)
        if value != -torch.inf
    ]
    chosen, finished = allocate_banks([option for option in options if option is not None], width)
    score_of = dict(zip(zip(beam_indices.tolist(), tokens.tolist(), strict=True), scores.tolist(), strict=True))
    for option in finished:
        score = score_of[option.beam_index, option.token]
        sentence.finished[0].append(
            Hypothesis(generated[option.beam_index], score, finished=True, ranking_score=option.ranking_score)
        )
    active.ranking_scores[row] = active.scores[row] = -torch.inf
    for column, option in enumerate(chosen):
        active.beam_indices[row, column], active.tokens[row, column] = option.beam_index, option.token
        active.ranking_scores[row, column] = option.ranking_score
        active.scores[row, column] = score_of[option.beam_index, option.token]


def _token_counts(active: Sequence[Candidates], vocab_size: int) -> Float[Tensor, "N V"]:
    """Counts how often the earlier groups chose each token at this step."""
    tokens = torch.cat([group.tokens for group in active], dim=1)
    is_active = torch.cat([group.ranking_scores for group in active], dim=1) != -torch.inf
    return is_active.new_zeros(len(tokens), vocab_size, dtype=torch.float32).scatter_add_(1, tokens, is_active.float())


def sample_candidates(beams: BeamState, log_p: LogP, processed_log_p: LogP, sampling: Sampling) -> Candidates:
    """Draws one token per hypothesis; those that draw EOS are finished."""
    n, width, _ = log_p.shape
    steps = beams.lengths[:, None, None].expand(-1, width, 1)
    tokens = draw(processed_log_p, beams.uniform.gather(2, steps)[:, :, 0], sampling)
    scores, ranking_scores = (
        sums + terms.gather(2, tokens[:, :, None])[:, :, 0]
        for sums, terms in ((beams.scores, log_p), (beams.ranking_scores, processed_log_p))
    )
    beam_indices = torch.arange(width, device=tokens.device).expand(n, -1)
    beams.collect_finished(Candidates(ranking_scores, scores, beam_indices, tokens), slice(0, width), 0)
    ranking_scores = ranking_scores.masked_fill(is_end(tokens, beams.ends), -torch.inf)
    return Candidates(ranking_scores, scores, beam_indices, tokens)
