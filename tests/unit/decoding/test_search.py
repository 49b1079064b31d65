"""Searches against brute force and against a plain search over lists."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from transformer.blocks import causal_mask
from transformer.cli.search import search_of
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
from transformer.errors import ConfigError
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS
from transformer.transformer import Transformer
from unit.decoding.tiny_search import model_of, requests

EOS, UNK, WRITABLE, NEVER = 2, 3, (2, 4, 5, 6), -float("inf")
PENALTIES = [paper_length_penalty(0.0), paper_length_penalty(0.6), length_normalization(1.0)]


@torch.no_grad()
def next_log_p(model: Transformer, request: Request, tokens: Sequence[int]) -> list[float]:
    """One sentence, no cache, no batch; float32 as the model is."""
    tgt = torch.tensor([[1, *tokens]])
    return model(torch.tensor([request.source]), tgt, None, causal_mask(tgt.size(1)))[0, -1].log_softmax(-1).tolist()


def forced_score(model: Transformer, request: Request, tokens: Sequence[int]) -> float:
    """Log-probability of a whole target."""
    return sum(next_log_p(model, request, tokens[:i])[token] for i, token in enumerate(tokens))


def worths(search: Search, request: Request, written: tuple[int, ...], log_p: list[float]) -> list[float]:
    """What each next token is worth under the rules, one token after the other."""
    found = []
    for token, p in enumerate(log_p):
        n, text = search.no_repeat_ngram, (*written, token)
        repeats = n and text[-n:] in [written[i : i + n] for i in range(len(written) - n + 1)]
        banned = any(text[-len(sequence) :] == tuple(sequence) for sequence in search.banned)
        early = token == EOS and len(written) < search.min_tokens
        unknown = token in (0, 1) or (token == UNK and not search.allow_unknown)
        worth = p * search.repetition_penalty if token in written else p
        if len(written) < len(request.prefix):
            worth = p if token == request.prefix[len(written)] else NEVER
        elif repeats or banned or early or unknown:
            worth = NEVER
        found.append(worth)
    return found


def by_lists(model: Transformer, request: Request, search: Search) -> list[Hypothesis]:
    """The search that `search_each` describes, for one sentence, with lists."""
    size, limit = search.beam // search.groups, request.limit
    followed: list[list[tuple[tuple[int, ...], float, float]]] = [[((), 0.0, 0.0)] for _ in range(search.groups)]
    ended: list[list[Hypothesis]] = [[] for _ in followed]
    for length in range(1, limit + 1):
        chosen: list[int] = []
        content = []
        before = followed
        followed = []
        for group, hypotheses in enumerate(before):
            found = []
            for tokens, score, value in hypotheses:
                log_p = next_log_p(model, request, tokens)
                for token, worth in enumerate(worths(search, request, tokens, log_p)):
                    worth -= search.diversity * chosen.count(token)
                    if worth != NEVER:
                        found.append(((*tokens, token), score + log_p[token], value + worth))
            found.sort(key=lambda triple: -triple[2])
            ended[group] += [Hypothesis(list(t[:-1]), s, True, v) for t, s, v in found[:size] if t[-1] == EOS]
            followed.append([triple for triple in found[: 2 * size] if triple[0][-1] != EOS][:size])
            chosen += [tokens[-1] for tokens, *_ in followed[-1]]
            best = sorted(ended[group], key=lambda h: -h.value / search.penalty(h.length))
            enough = len(best) >= size
            if enough and search.stopping == "exhaustive" and followed[-1]:
                worst = best[size - 1].value / search.penalty(best[size - 1].length)
                enough = followed[-1][0][2] / search.penalty(limit) <= worst
            content.append(enough or not followed[-1])
        if all(content) or length == limit:
            left = [] if all(content) else before if request.reserve_eos else followed
            if not any(followed) and not any(ended):
                left = before
            cut = [Hypothesis(list(t), s, False, v) for group in left for t, s, v in group]
            break
    ranked = [
        sorted(part, key=lambda h: -h.value / search.penalty(h.length)) for part in ([*itertools.chain(*ended)], cut)
    ]
    different: list[Hypothesis] = []
    for hypothesis in itertools.chain(*ranked):
        if hypothesis.tokens not in [other.tokens for other in different]:
            different.append(hypothesis)
    return different[: search.n_best]


def same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    assert [h.finished for h in found] == [h.finished for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-4)
    assert [h.value for h in found] == pytest.approx([h.value for h in expected], abs=1e-4)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_full_beam_is_brute_force(seed: int, penalty: Callable[[int], float]) -> None:
    """Catches a best hypothesis that is lost: stopped too early, a wrong penalty, a wrong sum."""
    model, limit = model_of(seed), 4
    search = Search(4**limit, penalty, "exhaustive", n_best=10)
    bodies = [body for n in range(limit) for body in itertools.product(WRITABLE[1:], repeat=n)]
    for request, found in zip(asked := requests(seed, [limit] * 2), search_all(model, asked, search), strict=True):
        scores = {body: forced_score(model, request, (*body, EOS)) for body in bodies}
        best = sorted(bodies, key=lambda body: -scores[body] / penalty(len(body) + 1))
        assert [tuple(h.tokens) for h in found] == best[:10]
        assert [h.score for h in found] == pytest.approx([scores[body] for body in best[:10]], abs=1e-4)


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
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_a_full_beam_under_rules_is_brute_force(rules: dict[str, Any], prefix: tuple[int, ...]) -> None:
    """Catches a rule that forbids too much or too little, and scores that are no longer the model's."""
    model, limit = model_of(7), 4
    search = Search(5**limit, PENALTIES[1], "exhaustive", n_best=6, **rules)
    bodies = [body for n in range(limit) for body in itertools.product((3, 4, 5, 6), repeat=n)]
    asked = requests(7, [limit] * 2, prefix=prefix)
    for request, found in zip(asked, search_all(model, asked, search), strict=True):
        values = {}
        for body in bodies:
            steps = [next_log_p(model, request, body[:i]) for i in range(len(body) + 1)]
            tokens = (*body, EOS)
            values[body] = sum(worths(search, request, body[:i], step)[tokens[i]] for i, step in enumerate(steps))
        best = sorted(bodies, key=lambda body: -values[body] / search.penalty(len(body) + 1))
        best = [body for body in best[:6] if values[body] != NEVER]
        found = [hypothesis for hypothesis in found if hypothesis.finished]
        assert len(best) > 1
        assert [tuple(h.tokens) for h in found] == best
        assert [h.score for h in found] == pytest.approx(
            [forced_score(model, request, (*body, EOS)) for body in best], abs=1e-4
        )
        assert [h.value for h in found] == pytest.approx([values[body] for body in best], abs=1e-4)


@pytest.mark.parametrize("reserve_eos", [False, True])
@pytest.mark.parametrize("stopping", ["early", "exhaustive"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_a_narrow_beam_is_the_search_over_lists(
    beam: int, penalty: Callable[[int], float], stopping: str, reserve_eos: bool
) -> None:
    """Catches beams mixed up between rows, in the cache or in the tokens; candidates counted wrongly; wrong stops."""
    model = model_of(beam, vocabulary=13)
    asked = requests(beam, [9, 3, 12, 7, 1], vocabulary=13, reserve_eos=reserve_eos)
    search = Search(beam, penalty, stopping, n_best=beam)
    for request, found in zip(asked, search_all(model, asked, search), strict=True):
        same(found, by_lists(model, request, search))


NARROW: dict[str, dict[str, Any]] = {
    **RULES,
    "groups": {"groups": 2, "diversity": 0.7},
    "single_groups": {"groups": 4, "diversity": 2.0, "stopping": "exhaustive"},
    "groups_and_rules": {"groups": 2, "diversity": 0.5, "no_repeat_ngram": 2, "min_tokens": 3},
}


@pytest.mark.parametrize("prefix", [(), (5, 9, 5)])
@pytest.mark.parametrize("options", NARROW.values(), ids=NARROW)
def test_a_narrow_beam_under_rules_is_the_search_over_lists(options: dict[str, Any], prefix: tuple[int, ...]) -> None:
    """Catches rules that look at another sentence's tokens, at padding, or at the tokens of a wrong hypothesis."""
    model, search = model_of(4, vocabulary=13), Search(4, n_best=4, **options)
    asked = requests(4, [9, 4, 12, 25, 30, 6, 11, 20], vocabulary=13, prefix=prefix)
    for tokens in (10_000, 60):  # all at once, and a few at a time
        together = search_all(model, asked, search, batch_tokens=tokens, refill_below=0.75)
        for request, found in zip(asked, together, strict=True):
            same(found, by_lists(model, request, search))


def test_the_models_of_these_tests_prune() -> None:
    """Guards the tests above: a narrow beam must miss what a wide one finds, or pruning was never tried."""
    model, asked = model_of(5, vocabulary=13), requests(5, [9] * 5, vocabulary=13)
    narrow, wide = (search_all(model, asked, Search(beam, PENALTIES[0], "exhaustive")) for beam in (2, 64))
    assert any(n[0].tokens != w[0].tokens for n, w in zip(narrow, wide, strict=True))


@pytest.mark.parametrize("beam", [1, 3])
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

    found = {}
    for index, hypotheses in search_each(model, reading(), Search(beam), batch_tokens=40 * beam, refill_below=0.75):
        admitted_late.append(len(read) < len(asked))
        found[index] = hypotheses
    assert len(found) == 30
    assert any(admitted_late), "some must end before the last are read"
    for index, request in enumerate(asked):
        same(found[index], by_lists(model, request, Search(beam)))


def test_what_never_ends_is_cut_and_comes_last() -> None:
    """Catches a cut hypothesis before one that ended, or none at all where EOS never comes."""
    search = Search(3, n_best=3)
    found = search_all(model_of(2, ends=-60.0), requests(2, [5, 3]), search)
    assert [[len(h.tokens) for h in row] for row in found] == [[5, 5, 5], [3, 3, 3]]
    assert not any(h.finished for row in found for h in row)
    found = search_all(model_of(2, ends=0.0), requests(3, [2] * 8), Search(5, n_best=5))
    kinds = [[h.finished for h in row] for row in found]
    assert any(len(set(row)) == 2 for row in kinds)
    assert all(row == sorted(row, reverse=True) for row in kinds)


def test_where_every_token_is_forbidden_what_stands_is_returned() -> None:
    """Catches a sentence without any hypothesis."""
    search = Search(2, no_repeat_ngram=1, min_tokens=30)
    ((found,),) = search_all(model_of(2), requests(2, [20]), search)
    assert sorted(found.tokens) == [4, 5, 6]
    assert not found.finished


def test_a_beam_wider_than_the_vocabulary() -> None:
    """Catches candidates that do not exist: at the first step there are only four."""
    found = search_all(model_of(3), requests(3, [1, 2]), Search(50, stopping="exhaustive", n_best=50))
    assert len(found[0]) == 4  # EOS, and three that are cut
    assert all(torch.isfinite(torch.tensor(h.score)) for row in found for h in row)


def test_control_tokens_are_never_written_and_scores_are_the_models() -> None:
    """Catches a renormalized score after a ban, and padding as output."""
    logits = torch.tensor([[9.0, 8.0, 1.0, 7.0, 2.0, 0.0]])
    log_p = log_probabilities(logits, DEFAULT_SPECIAL_TOKENS.suppressed_ids(allow_unknown=False))
    assert log_p.argmax(-1).tolist() == [4]
    assert log_p.isinf()[0].tolist() == [True, True, False, True, False, False]
    torch.testing.assert_close(log_p[:, 4], logits.log_softmax(-1)[:, 4])


def test_penalties_by_hand() -> None:
    """Catches a formula mistaken, and defaults of the command line swapped: (5 + 7) / 6 = 2, and 7 itself."""
    assert paper_length_penalty(0.5)(7) == pytest.approx(2**0.5)
    assert length_normalization(1.0)(7) == 7
    assert search_of(beam=4).penalty(7) == pytest.approx(2**0.6)
    assert search_of(beam=4, length_penalty="normalize").penalty(7) == 7
    assert search_of(beam=3, length_penalty="normalize", alpha=2.0).penalty(7) == 49
    assert search_of(beam=3, alpha=1.0).beam == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam=0 is below 1; choose 1 for greedy search"),
        ({"stopping": "never"}, "stopping='never' is unknown; choose 'early' or 'exhaustive'"),
        ({"beam": 2, "n_best": 3}, "n_best=3 is not between 1 and beam=2; choose a wider beam"),
        ({"beam": 4, "groups": 3}, "groups=3 does not divide beam=4; choose a divisor"),
        ({"min_tokens": -1}, "min_tokens=-1 is not a number from 0 on"),
        ({"diversity": float("nan")}, "diversity=nan is not a number from 0 on"),
        ({"repetition_penalty": 0.0}, "repetition_penalty=0.0 is not above 0"),
        ({"banned": [()]}, "an empty sequence cannot be banned"),
    ],
)
def test_what_is_no_search_is_refused(options: dict[str, Any], message: str) -> None:
    """Catches a division by zero, a search that is silently another one, a setting that does nothing."""
    with pytest.raises(ConfigError, match=message):
        Search(**options)


def test_odd_penalties_are_refused() -> None:
    """Catches a penalty that falls or overflows."""
    for penalty in (paper_length_penalty, length_normalization):
        for alpha in (-1.0, 400.0, float("nan")):
            with pytest.raises(ConfigError, match=r"alpha=.* is not between 0 and 10; choose e\.g\. 0\.6"):
                penalty(alpha)


@pytest.mark.parametrize("search", [GREEDY, Search(3)])
def test_a_model_of_nan_still_gives_a_line(search: Search) -> None:
    """Catches a row without any hypothesis, where every score is NaN."""
    model = model_of(1)
    with torch.no_grad():
        model.projection_layer.proj.weight.fill_(torch.nan)
    assert all(row for row in search_all(model, requests(1, [3, 3]), search))


def phrases(*ways: tuple[tuple[int, ...], ...]) -> tuple[Constraint, ...]:
    return tuple(Constraint(spellings) for spellings in ways)


REQUIRED = [
    phrases(((4, 4, 5),)), phrases(((6,),), ((5, 4),)), phrases(((5, 5),), ((5, 6),)), phrases(((6, 6, 4), (5, 4))),
    (Constraint(((5,),), times=2),), (Constraint(((4, 5),), times=2), Constraint(((6,),))),
    (Constraint(((6, 4), (5,)), joined=frozenset({(5,)}), not_after=frozenset({4})),),
    (Constraint(((5, 5), (4, 5)), joined=frozenset({(5, 5), (4, 5)}), not_after=frozenset({5, 6})),),
]  # fmt: skip


@pytest.mark.parametrize("required", REQUIRED)
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
                for p in phrase.spellings
            )
            >= phrase.times
            for phrase in required
        )
    ]
    asked = requests(6, [limit] * 2, required=required)
    for request, found in zip(asked, search_all(model, asked, search), strict=True):
        scores = {body: forced_score(model, request, (*body, EOS)) for body in bodies}
        best = sorted(bodies, key=lambda body: -scores[body] / search.penalty(len(body) + 1))[:5]
        assert [tuple(h.tokens) for h in found if h.finished] == best
        assert [h.score for h in found if h.finished] == pytest.approx([scores[body] for body in best], abs=1e-4)


@pytest.mark.parametrize("beam", [1, 4, 8])
def test_required_phrases_are_held_in_any_beam(beam: int) -> None:
    """Catches a bank without room, and a requirement of one sentence that binds its neighbours."""
    model = model_of(8, vocabulary=13)
    free = requests(8, [30] * 6, vocabulary=13)
    bound = requests(8, [30] * 6, vocabulary=13, required=phrases(((7, 12, 7),), ((9,),)))
    mixed = [pair[i % 2] for i, pair in enumerate(zip(free, bound, strict=True))]
    alone = search_all(model, free, Search(beam))
    for i, (found, unbound) in enumerate(zip(search_all(model, mixed, Search(beam)), alone, strict=True)):
        text = " ".join(map(str, found[0].tokens))
        if i % 2:
            assert "7 12 7" in text
            assert 9 in found[0].tokens
            end = (EOS,) * found[0].finished  # a single hypothesis may well go on to the limit
            assert found[0].score == pytest.approx(forced_score(model, mixed[i], (*found[0].tokens, *end)), abs=1e-3)
        else:
            same(found, unbound)


@pytest.mark.parametrize("beam", [2, 4, 8])
def test_phrases_that_begin_alike_are_held_in_any_beam(beam: int) -> None:
    """Catches their common beginning counted once for each, which hypotheses then repeat to the limit."""
    model, ways = model_of(8, vocabulary=13), ((7, 12, 5), (7, 12, 9), (7, 12, 11, 4))
    bound = requests(8, [40] * 6, vocabulary=13, required=phrases(*((way,) for way in ways)))
    for found in search_all(model, bound, Search(beam)):
        text = " ".join(map(str, found[0].tokens))
        assert [" ".join(map(str, way)) in text for way in ways] == [True] * 3


def test_of_hypotheses_that_are_cut_those_come_first_that_hold_most() -> None:
    """Catches a likelier one that holds nothing before one that holds a phrase."""
    model = model_of(8, vocabulary=13)
    (request,) = requests(8, [9], vocabulary=13, required=phrases(((7, 12),), ((5, 5, 5, 5),)))
    (found,) = search_all(model, [request], Search(4, n_best=4))
    texts = [" ".join(map(str, hypothesis.tokens)) for hypothesis in found]
    assert not any(hypothesis.finished for hypothesis in found)
    assert [("7 12" in text) + ("5 5 5 5" in text) for text in texts] == [2, 1, 1, 1]
    assert found[0].value < found[1].value


def test_a_phrase_is_not_gone_on_with_by_what_would_change_it() -> None:
    """Catches 5 followed by 6 where that is another number, and 5 6 refused where it must stand itself."""
    model, limit = model_of(6), 5
    search = Search(5**limit, PENALTIES[1], "exhaustive", n_best=20)
    for more in ((), (Constraint(((5, 6),)),)):
        required = (Constraint(((5,),), not_before=frozenset({4, 6})), *more)
        (found,) = search_all(model, requests(6, [limit], required=required), search)
        ended = [hypothesis.tokens for hypothesis in found if hypothesis.finished]
        pairs = [tuple(tokens[i : i + 2]) for tokens in ended for i in range(len(tokens) - 1)]
        assert len(ended) > 5
        assert (5, 4) not in pairs
        assert ((5, 6) in pairs) == bool(more)
        for tokens in ended:
            assert any(token == 5 and tokens[i + 1 : i + 2] != [6] for i, token in enumerate(tokens))
