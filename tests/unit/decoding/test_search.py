"""Searches against brute force and against a plain search over lists."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch

from samples import fast_first
from shapes import unchecked_shapes
from transformer.blocks import causal_mask
from transformer.decoding import (
    GREEDY,
    Constraint,
    Hypothesis,
    Request,
    Search,
    length_normalization,
    paper_length_penalty,
    search_all,
    search_each,
)
from transformer.decoding.candidates import log_probabilities
from transformer.decoding.logits_processors import History, forbid_early_eos
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS
from transformer.transformer import Transformer
from unit.decoding.tiny_search import model_of, requests

EOS, UNK, WRITABLE, NEVER = 2, 3, (2, 4, 5, 6), -float("inf")
PENALTIES = [paper_length_penalty(0.0), paper_length_penalty(0.6), length_normalization(1.0)]


def next_log_p(model: Transformer, request: Request, tokens: Sequence[int]) -> list[float]:
    """The log-probabilities of the next token: one sentence, no cache, no batch; float32 as the model is."""
    return _next_log_p(model, tuple(request.source), tuple(tokens))


@lru_cache(maxsize=100_000)  # searches by brute force ask for the same beginnings again and again
@torch.no_grad()
def _next_log_p(model: Transformer, source: tuple[int, ...], tokens: tuple[int, ...]) -> list[float]:
    tgt = torch.tensor([[1, *tokens]])
    with unchecked_shapes():
        logits = model(torch.tensor([source]), tgt, None, causal_mask(tgt.size(1)))
    return logits[0, -1].log_softmax(-1).tolist()


def forced_score(model: Transformer, request: Request, tokens: Sequence[int]) -> float:
    """Log-probability of a whole target."""
    return sum(next_log_p(model, request, tokens[:i])[token] for i, token in enumerate(tokens))


def processed(
    search: Search, request: Request, written: tuple[int, ...], log_p: list[float], ends: tuple[int, ...] = (EOS,)
) -> list[float]:
    """The processed log-probability of each next token, computed token by token."""
    values = []
    for token, p in enumerate(log_p):
        n, text = search.no_repeat_ngram, (*written, token)
        repeats = n and text[-n:] in [written[i : i + n] for i in range(len(written) - n + 1)]
        banned = any(text[-len(sequence) :] == tuple(sequence) for sequence in search.banned)
        early = token in ends and len(written) < search.min_tokens
        unknown = token in (0, 1) or (token == UNK and not search.allow_unknown)
        value = p * (search.repetition_penalty or 1) if token in written else p
        if len(written) < len(request.prefix):
            value = p if token == request.prefix[len(written)] else NEVER
        elif repeats or banned or early or unknown:
            value = NEVER
        values.append(value)
    return values


def by_lists(model: Transformer, request: Request, search: Search, ends: tuple[int, ...] = (EOS,)) -> list[Hypothesis]:
    """The search that `search_each` describes, for one sentence, with lists."""
    size, limit = search.beam // search.groups, request.limit
    active: list[list[tuple[tuple[int, ...], float, float]]] = [[((), 0.0, 0.0)] for _ in range(search.groups)]
    finished: list[list[Hypothesis]] = [[] for _ in active]
    for length in range(1, limit + 1):
        chosen: list[int] = []
        can_stop = []
        before = active
        active = []
        for group, hypotheses in enumerate(before):
            candidates = []
            for tokens, score, ranking_score in hypotheses:
                log_p = next_log_p(model, request, tokens)
                for token, value in enumerate(processed(search, request, tokens, log_p, ends)):
                    value -= search.diversity * chosen.count(token)
                    if value != NEVER:
                        candidates.append(((*tokens, token), score + log_p[token], ranking_score + value))
            candidates.sort(key=lambda triple: -triple[2])
            finished[group] += [Hypothesis(list(t[:-1]), s, True, r) for t, s, r in candidates[:size] if t[-1] in ends]
            active.append([triple for triple in candidates if triple[0][-1] not in ends][:size])
            chosen += [tokens[-1] for tokens, *_ in active[-1]]
            best = sorted(finished[group], key=lambda h: -h.ranking_score / search.length_penalty(h.length))
            enough = len(best) >= size
            if enough and search.stopping == "exhaustive" and active[-1]:
                worst = best[size - 1].ranking_score / search.length_penalty(best[size - 1].length)
                enough = active[-1][0][2] / search.length_penalty(limit) <= worst
            can_stop.append(enough or not active[-1])
        if all(can_stop) or length == limit:
            remaining = [] if all(can_stop) else before if request.reserve_eos else active
            if not any(active) and not any(finished):
                remaining = before
            truncated = [Hypothesis(list(t), s, False, r) for group in remaining for t, s, r in group]
            break
    ranked = [
        sorted(hypotheses, key=lambda h: -h.ranking_score / search.length_penalty(h.length))
        for hypotheses in ([*itertools.chain(*finished)], truncated)
    ]
    distinct: list[Hypothesis] = []
    for hypothesis in itertools.chain(*ranked):
        if hypothesis.tokens not in [other.tokens for other in distinct]:
            distinct.append(hypothesis)
    return distinct[: search.n_best]


def assert_same(actual: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.tokens for h in actual] == [h.tokens for h in expected]
    assert [h.finished for h in actual] == [h.finished for h in expected]
    assert [h.score for h in actual] == pytest.approx([h.score for h in expected], abs=1e-4)
    assert [h.ranking_score for h in actual] == pytest.approx([h.ranking_score for h in expected], abs=1e-4)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("seed", fast_first(range(3), 1))
def test_a_full_beam_is_brute_force(seed: int, penalty: Callable[[int], float]) -> None:
    """Catches a best hypothesis that is lost: stopped too early, a wrong penalty, a wrong sum."""
    model, limit = model_of(seed), 4
    search = Search(4**limit, penalty, "exhaustive", n_best=10)
    bodies = [body for n in range(limit) for body in itertools.product(WRITABLE[1:], repeat=n)]
    for request, hypotheses in zip(asked := requests(seed, [limit] * 2), search_all(model, asked, search), strict=True):
        scores = {body: forced_score(model, request, (*body, EOS)) for body in bodies}
        best = sorted(bodies, key=lambda body: -scores[body] / penalty(len(body) + 1))
        assert [tuple(h.tokens) for h in hypotheses] == best[:10]
        assert [h.score for h in hypotheses] == pytest.approx([scores[body] for body in best[:10]], abs=1e-4)


RULES: dict[str, dict[str, Any]] = {
    "min_tokens": {"min_tokens": 2},
    "no_repeat_1": {"no_repeat_ngram": 1},
    "no_repeat_2": {"no_repeat_ngram": 2},
    "no_repeat_3": {"no_repeat_ngram": 3},
    "repetition": {"repetition_penalty": 1.7},
    "banned": {"banned": [(5,), (4, 6), (6, 6, 4)]},
    "unknown": {"allow_unknown": True},
    "all": {"min_tokens": 1, "no_repeat_ngram": 2, "repetition_penalty": 1.3, "banned": [(4, 5)]},
}


@pytest.mark.parametrize("prefix", [(), (5, 4)])
@pytest.mark.parametrize("rules", fast_first(RULES.values(), 3), ids=RULES)
def test_a_full_beam_under_rules_is_brute_force(rules: dict[str, Any], prefix: tuple[int, ...]) -> None:
    """Catches a rule that forbids too much or too little, and scores that are no longer the model's."""
    model, limit = model_of(7), 4
    search = Search(5**limit, PENALTIES[1], "exhaustive", n_best=6, **rules)
    bodies = [body for n in range(limit) for body in itertools.product((3, 4, 5, 6), repeat=n)]
    asked = requests(7, [limit] * 2, prefix=prefix)
    for request, hypotheses in zip(asked, search_all(model, asked, search), strict=True):
        values = {}
        for body in bodies:
            steps = [next_log_p(model, request, body[:i]) for i in range(len(body) + 1)]
            tokens = (*body, EOS)
            values[body] = sum(processed(search, request, body[:i], step)[tokens[i]] for i, step in enumerate(steps))
        best = sorted(bodies, key=lambda body: -values[body] / search.length_penalty(len(body) + 1))
        best = [body for body in best[:6] if values[body] != NEVER]
        hypotheses = [hypothesis for hypothesis in hypotheses if hypothesis.finished]
        assert len(best) > 1
        assert [tuple(h.tokens) for h in hypotheses] == best
        assert [h.score for h in hypotheses] == pytest.approx(
            [forced_score(model, request, (*body, EOS)) for body in best], abs=1e-4
        )
        assert [h.ranking_score for h in hypotheses] == pytest.approx([values[body] for body in best], abs=1e-4)


@pytest.mark.parametrize("reserve_eos", [False, True])
@pytest.mark.parametrize("stopping", ["early", "exhaustive"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("beam", fast_first([3, 1, 2, 5], 1))
def test_a_narrow_beam_is_the_search_over_lists(
    beam: int, penalty: Callable[[int], float], stopping: str, reserve_eos: bool
) -> None:
    """Catches beams mixed up between rows, in the cache or in the tokens; candidates counted wrongly; wrong stops."""
    model = model_of(beam, vocabulary=13)
    asked = requests(beam, [9, 3, 12, 7, 1], vocabulary=13, reserve_eos=reserve_eos)
    search = Search(beam, penalty, stopping, n_best=beam)
    for request, hypotheses in zip(asked, search_all(model, asked, search), strict=True):
        assert_same(hypotheses, by_lists(model, request, search))


NARROW: dict[str, dict[str, Any]] = {
    **RULES,
    "groups": {"groups": 2, "diversity": 0.7},
    "single_groups": {"groups": 4, "diversity": 2.0, "stopping": "exhaustive"},
    "groups_and_rules": {"groups": 2, "diversity": 0.5, "no_repeat_ngram": 2, "min_tokens": 3},
}


@pytest.mark.parametrize("prefix", [(), (5, 9, 5)])
@pytest.mark.parametrize("options", fast_first(NARROW.values(), 3), ids=NARROW)
def test_a_narrow_beam_under_rules_is_the_search_over_lists(options: dict[str, Any], prefix: tuple[int, ...]) -> None:
    """Catches rules that look at another sentence's tokens, at padding, or at the tokens of a wrong hypothesis."""
    model, search = model_of(4, vocabulary=13), Search(4, n_best=4, **options)
    asked = requests(4, [9, 4, 12, 25, 30, 6, 11, 20], vocabulary=13, prefix=prefix)
    for tokens in (10_000, 60):  # all at once, and a few at a time
        together = search_all(model, asked, search, batch_tokens=tokens, refill_below=0.75)
        for request, hypotheses in zip(asked, together, strict=True):
            assert_same(hypotheses, by_lists(model, request, search))


@pytest.mark.parametrize(
    ("beam", "options"),
    [(4, {}), (4, {"min_tokens": 3}), (4, {"repetition_penalty": 1.3}), (4, {"groups": 2}), (1, {})],
)
def test_a_model_may_have_several_ends(beam: int, options: dict[str, Any]) -> None:
    """Catches a text that goes on after its second kind of end, and a beam that ends leave with too few hypotheses."""
    model, ends, search = model_of(4, vocabulary=13), (EOS, 5, 11), Search(beam, n_best=beam, **options)
    special_tokens = replace(DEFAULT_SPECIAL_TOKENS, further_eos=ends[1:])
    asked = requests(4, [9, 4, 12, 25, 30], vocabulary=13)
    for request, hypotheses in zip(asked, search_all(model, asked, search, special_tokens=special_tokens), strict=True):
        assert_same(hypotheses, by_lists(model, request, search, ends))
        assert not {*ends} & {token for hypothesis in hypotheses for token in hypothesis.tokens}


def test_the_models_of_these_tests_prune() -> None:
    """Guards the tests above: a narrow beam must miss what a wide one finds, or pruning was never tried."""
    model, asked = model_of(5, vocabulary=13), requests(5, [9] * 5, vocabulary=13)
    narrow, wide = (search_all(model, asked, Search(beam, PENALTIES[0], "exhaustive")) for beam in (2, 64))
    assert any(n[0].tokens != w[0].tokens for n, w in zip(narrow, wide, strict=True))


@pytest.mark.parametrize("beam", fast_first([1, 3], 1))
def test_sentences_enter_while_others_are_searched(beam: int) -> None:
    """Catches caches, positions or tokens mixed up when sentences of other lengths join; a request that is lost."""
    model = model_of(3, vocabulary=13)
    asked = requests(3, [3 + 5 * (i % 6) for i in range(30)], vocabulary=13)
    read: list[int] = []
    admitted_late = []

    def reading() -> Iterator[Request]:
        for request in asked:
            read.append(request.number)
            yield request

    results = {}
    for index, hypotheses in search_each(model, reading(), Search(beam), batch_tokens=40 * beam, refill_below=0.75):
        admitted_late.append(len(read) < len(asked))
        results[index] = hypotheses
    assert len(results) == 30
    assert any(admitted_late), "some must end before the last are read"
    for index, request in enumerate(asked):
        assert_same(results[index], by_lists(model, request, Search(beam)))


@pytest.mark.parametrize("beam", [1, 3])
def test_sentences_that_enter_late_have_the_minimum_of_tokens_too(beam: int) -> None:
    """Catches a minimum that is compared with the length of another sentence, which began earlier or later."""
    model, search = model_of(3, vocabulary=13, ends=5.0), Search(beam, min_tokens=5)
    asked = requests(3, [7 + 4 * (i % 3) for i in range(12)], vocabulary=13)
    results = dict(search_each(model, asked, search, batch_tokens=20 * beam, refill_below=1.0))
    for index, request in enumerate(asked):
        (hypothesis,) = results[index]
        assert len(hypothesis.tokens) >= 5
        assert_same([hypothesis], by_lists(model, request, search))


def test_the_minimum_of_tokens_is_counted_for_each_row() -> None:
    """Catches EOS forbidden where another row is too short, or allowed where another row is long enough."""
    log_p = torch.zeros(3, 2, 5)
    lengths = torch.tensor([4, 1, 3])
    history = History(torch.zeros(3, 2, 7, dtype=torch.long), lengths + 9, lengths)
    forbid_early_eos(log_p, history, min_tokens=3, ends=(EOS,))
    assert log_p[:, :, EOS].tolist() == [[0.0, 0.0], [NEVER, NEVER], [0.0, 0.0]]
    assert log_p.isfinite().sum() == log_p.numel() - 2


def test_what_never_ends_is_cut_and_comes_last() -> None:
    """Catches a cut hypothesis before one that ended, or none at all where EOS never comes."""
    search = Search(3, n_best=3)
    hypotheses = search_all(model_of(2, ends=-60.0), requests(2, [5, 3]), search)
    assert [[len(h.tokens) for h in row] for row in hypotheses] == [[5, 5, 5], [3, 3, 3]]
    assert not any(h.finished for row in hypotheses for h in row)
    hypotheses = search_all(model_of(2, ends=0.0), requests(3, [2] * 8), Search(5, n_best=5))
    kinds = [[h.finished for h in row] for row in hypotheses]
    assert any(len(set(row)) == 2 for row in kinds)
    assert all(row == sorted(row, reverse=True) for row in kinds)


def test_where_every_token_is_forbidden_what_stands_is_returned() -> None:
    """Catches a sentence without any hypothesis."""
    search = Search(2, no_repeat_ngram=1, min_tokens=30)
    ((hypothesis,),) = search_all(model_of(2), requests(2, [20]), search)
    assert sorted(hypothesis.tokens) == [4, 5, 6]
    assert not hypothesis.finished


def test_a_beam_wider_than_the_vocabulary() -> None:
    """Catches candidates that do not exist: at the first step there are only four."""
    hypotheses = search_all(model_of(3), requests(3, [1, 2]), Search(50, stopping="exhaustive", n_best=50))
    assert len(hypotheses[0]) == 4  # EOS, and three that are cut
    assert all(torch.isfinite(torch.tensor(h.score)) for row in hypotheses for h in row)


def test_control_tokens_are_never_written_and_scores_are_the_models() -> None:
    """Catches a renormalized score after a ban, and padding as output."""
    logits = torch.tensor([[9.0, 8.0, 1.0, 7.0, 2.0, 0.0]])
    log_p = log_probabilities(logits, DEFAULT_SPECIAL_TOKENS.suppressed_ids(allow_unknown=False))
    assert log_p.argmax(-1).tolist() == [4]
    assert log_p.isinf()[0].tolist() == [True, True, False, True, False, False]
    torch.testing.assert_close(log_p[:, 4], logits.log_softmax(-1)[:, 4])


@pytest.mark.parametrize("search", [GREEDY, Search(3)])
def test_a_model_of_nan_still_gives_a_line(search: Search) -> None:
    """Catches a row without any hypothesis, where every score is NaN."""
    model = model_of(1)
    with torch.no_grad():
        model.projection_layer.proj.weight.fill_(torch.nan)
    assert all(row for row in search_all(model, requests(1, [3, 3]), search))


def phrases(*ways: tuple[tuple[int, ...], ...]) -> tuple[Constraint, ...]:
    return tuple(Constraint(variants) for variants in ways)


REQUIRED = [
    phrases(((4, 4, 5),)), phrases(((6,),), ((5, 4),)), phrases(((5, 5),), ((5, 6),)), phrases(((6, 6, 4), (5, 4))),
    (Constraint(((5,),), times=2),), (Constraint(((4, 5),), times=2), Constraint(((6,),))),
    (Constraint(((6, 4), (5,)), joined=frozenset({(5,)}), not_after=frozenset({4})),),
    (Constraint(((5, 5), (4, 5)), joined=frozenset({(5, 5), (4, 5)}), not_after=frozenset({5, 6})),),
]  # fmt: skip


@pytest.mark.parametrize("required", fast_first(REQUIRED, 3))
def test_a_full_beam_with_required_phrases_is_brute_force(required: tuple[Constraint, ...]) -> None:
    """Catches a phrase lost where it begins twice (4 4 4 5), once for two, or where it ends a word; an early end."""
    model, limit = model_of(6), 5
    search = Search(5**limit, PENALTIES[1], "exhaustive", n_best=5)
    bodies = [
        body
        for n in range(limit)
        for body in itertools.product(WRITABLE[1:], repeat=n)
        if all(
            sum(
                body[i : i + len(p)] == p and not (p in phrase.joined and i and body[i - 1] in phrase.not_after)
                for i in range(n)
                for p in phrase.variants
            )
            >= phrase.times
            for phrase in required
        )
    ]
    asked = requests(6, [limit] * 2, required=required)
    for request, hypotheses in zip(asked, search_all(model, asked, search), strict=True):
        scores = {body: forced_score(model, request, (*body, EOS)) for body in bodies}
        best = sorted(bodies, key=lambda body: -scores[body] / search.length_penalty(len(body) + 1))[:5]
        assert [tuple(h.tokens) for h in hypotheses if h.finished] == best
        assert [h.score for h in hypotheses if h.finished] == pytest.approx([scores[body] for body in best], abs=1e-4)


@pytest.mark.parametrize("beam", [1, 4, 8])
def test_required_phrases_are_held_in_any_beam(beam: int) -> None:
    """Catches a bank without capacity, and a requirement of one sentence that binds its neighbours."""
    model = model_of(8, vocabulary=13)
    free = requests(8, [30] * 6, vocabulary=13)
    bound = requests(8, [30] * 6, vocabulary=13, required=phrases(((7, 12, 7),), ((9,),)))
    mixed = [pair[i % 2] for i, pair in enumerate(zip(free, bound, strict=True))]
    alone = search_all(model, free, Search(beam))
    for i, (hypotheses, unbound) in enumerate(zip(search_all(model, mixed, Search(beam)), alone, strict=True)):
        text = " ".join(map(str, hypotheses[0].tokens))
        if i % 2:
            assert "7 12 7" in text
            assert 9 in hypotheses[0].tokens
            end = (EOS,) * hypotheses[0].finished  # a single hypothesis may well go on to the limit
            expected = forced_score(model, mixed[i], (*hypotheses[0].tokens, *end))
            assert hypotheses[0].score == pytest.approx(expected, abs=1e-3)
        else:
            assert_same(hypotheses, unbound)


@pytest.mark.parametrize("beam", [2, 4, 8])
def test_phrases_that_begin_alike_are_held_in_any_beam(beam: int) -> None:
    """Catches their common beginning counted once for each, which hypotheses then repeat to the limit."""
    model, ways = model_of(8, vocabulary=13), ((7, 12, 5), (7, 12, 9), (7, 12, 11, 4))
    bound = requests(8, [40] * 6, vocabulary=13, required=phrases(*((way,) for way in ways)))
    for hypotheses in search_all(model, bound, Search(beam)):
        text = " ".join(map(str, hypotheses[0].tokens))
        assert [" ".join(map(str, way)) in text for way in ways] == [True] * 3


def test_truncated_hypotheses_that_satisfy_most_constraints_come_first() -> None:
    """Catches a likelier one that holds nothing before one that holds a phrase."""
    model = model_of(8, vocabulary=13)
    (request,) = requests(8, [9], vocabulary=13, required=phrases(((7, 12),), ((5, 5, 5, 5),)))
    (hypotheses,) = search_all(model, [request], Search(4, n_best=4))
    texts = [" ".join(map(str, hypothesis.tokens)) for hypothesis in hypotheses]
    assert not any(hypothesis.finished for hypothesis in hypotheses)
    assert [("7 12" in text) + ("5 5 5 5" in text) for text in texts] == [2, 1, 1, 1]
    assert hypotheses[0].ranking_score < hypotheses[1].ranking_score


def test_a_phrase_is_not_followed_by_what_would_change_it() -> None:
    """Catches 5 followed by 6 where that is another number, and 5 6 refused where it must stand itself."""
    model, limit = model_of(6), 5
    search = Search(5**limit, PENALTIES[1], "exhaustive", n_best=20)
    for more in ((), (Constraint(((5, 6),)),)):
        required = (Constraint(((5,),), not_before=frozenset({4, 6})), *more)
        (hypotheses,) = search_all(model, requests(6, [limit], required=required), search)
        ended = [hypothesis.tokens for hypothesis in hypotheses if hypothesis.finished]
        pairs = [tuple(tokens[i : i + 2]) for tokens in ended for i in range(len(tokens) - 1)]
        assert len(ended) > 5
        assert (5, 4) not in pairs
        assert ((5, 6) in pairs) == bool(more)
        for tokens in ended:
            assert any(token == 5 and tokens[i + 1 : i + 2] != [6] for i, token in enumerate(tokens))
