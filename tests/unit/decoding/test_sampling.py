"""Drawing: from the right distribution, and the same numbers for a sentence wherever it stands."""

import math
from collections import Counter
from typing import Any

import pytest
import torch

from transformer.decoding import Request, Sampling, Search, search_all
from transformer.decoding.sampling import draw, filter_logits, random_stream
from transformer.errors import ConfigError
from transformer.transformer import Transformer, build_transformer

P = [0.4, 0.25, 0.2, 0.1, 0.05]
FILTERED: list[tuple[dict[str, Any], list[float]]] = [
    ({}, P),
    ({"top_k": 2}, [0.4, 0.25, 0, 0, 0]),
    ({"top_k": 9}, P),
    ({"top_p": 0.6}, [0.4, 0.25, 0, 0, 0]),
    ({"top_p": 0.66}, [0.4, 0.25, 0.2, 0, 0]),
    ({"top_p": 0.01}, [0.4, 0, 0, 0, 0]),
    ({"min_p": 0.24}, [0.4, 0.25, 0.2, 0.1, 0]),
    ({"min_p": 1.0}, [0.4, 0, 0, 0, 0]),
    ({"top_k": 4, "top_p": 0.8}, [0.4, 0.25, 0.2, 0, 0]),
]


@pytest.mark.parametrize(("options", "expected"), FILTERED)
def test_which_tokens_may_be_drawn(options: dict[str, Any], expected: list[float]) -> None:
    """Catches a filter one token too wide or too narrow; the order of tokens must not matter."""
    order = torch.tensor([3, 0, 4, 2, 1])
    log_p = torch.tensor(P).log()[order]
    p = filter_logits(log_p, Sampling(**options)).softmax(-1)
    torch.testing.assert_close(p, (torch.tensor(expected) / sum(expected))[order])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_distribution(temperature: float) -> None:
    """Catches a temperature upside down, and a token that is never or always drawn."""
    n = 40_000
    log_p = torch.tensor([*P, 0.0]).log().expand(n, -1)
    tokens = draw(log_p, random_stream(5, 0, 1, n)[0], Sampling(temperature=temperature))
    weights = [p ** (1 / temperature) for p in P]
    counts = Counter(tokens.tolist())
    for token, weight in enumerate(weights):
        p = weight / sum(weights)
        assert abs(counts[token] / n - p) < 4 * math.sqrt(p * (1 - p) / n)
    assert set(counts) == set(range(5))


def model() -> Transformer:
    torch.manual_seed(3)
    return build_transformer(17, 17, 12, 40, d_model=16, N=1, h=2, d_ff=20, dropout=0.0).eval()


def test_a_sentence_draws_the_same_in_any_company() -> None:
    """Catches random numbers shared by a batch, or tied to the order in which sentences are searched."""
    asked = [Request([5 + i % 3, 2], 8 + i, number=i) for i in range(12)]
    search = Search(3, n_best=3, sampling=Sampling(seed=7))
    together = search_all(model(), asked, search)
    turned = search_all(model(), asked[::-1], search, batch_tokens=30, refill_below=0.9)[::-1]
    alone = [search_all(model(), [request], search)[0] for request in asked]
    tokens = [[h.tokens for h in hypotheses] for hypotheses in together]
    assert tokens == [[h.tokens for h in hypotheses] for hypotheses in turned]
    assert tokens == [[h.tokens for h in hypotheses] for hypotheses in alone]
    assert any(len({tuple(t) for t in samples}) == 3 for samples in tokens), "samples of a sentence must differ"
    other = search_all(model(), asked, Search(3, n_best=3, sampling=Sampling(seed=8)))
    assert tokens != [[h.tokens for h in hypotheses] for hypotheses in other]


def test_sampling_with_logits_processors_keeps_the_models_score() -> None:
    """Catches rules that sampling ignores, and scores of the filtered distribution."""
    search = Search(4, n_best=4, no_repeat_ngram=1, banned=[(7,)], sampling=Sampling(temperature=3.0, top_k=12))
    for request, hypotheses in zip(asked := [Request([5, 6, 2], 9, number=i) for i in range(6)],
                              search_all(model(), asked, search), strict=True):  # fmt: skip
        for hypothesis in hypotheses:
            assert 7 not in hypothesis.tokens
            assert len(set(hypothesis.tokens)) == len(hypothesis.tokens)
            steps = [*hypothesis.tokens, 2] if hypothesis.finished else hypothesis.tokens
            tgt = torch.tensor([[1, *hypothesis.tokens]])[:, : len(steps)]
            mask = torch.ones(len(steps), len(steps), dtype=torch.bool).tril()
            log_p = model()(torch.tensor([request.source]), tgt, None, mask)[0].log_softmax(-1)
            forced = log_p[range(len(steps)), steps].sum().item()
            assert hypothesis.score == pytest.approx(forced, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature=0.0 is below 0.001; leave sampling out for greedy search"),
        ({"temperature": 1e-300}, "temperature=1e-300 is below 0.001; leave sampling out for greedy search"),
        ({"top_k": -1}, "top_k=-1 is below 0"),
        ({"top_p": 0.0}, "top_p=0.0 is not above 0; choose 1 to keep all tokens"),
        ({"min_p": 1.5}, "min_p=1.5 is above 1; choose 0 to keep all tokens"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    """Catches a division by zero and an empty set of tokens."""
    with pytest.raises(ConfigError, match=message):
        Sampling(**options)


@pytest.mark.parametrize("options", [{"limit_ends": True}, {}])
@pytest.mark.parametrize("reserve_eos", [False, True])
def test_equal_samples_are_all_returned(options: dict[str, Any], reserve_eos: bool) -> None:
    """Catches fewer lines than were asked for, and one that ended with the limit returned a second time as cut."""
    search = Search(3, n_best=3, sampling=Sampling(top_k=1), **options)
    for limit in (1, 2, 5, 9, 30):
        ((*hypotheses,),) = search_all(model(), [Request([5, 6, 2], limit, reserve_eos=reserve_eos)], search)
        assert len(hypotheses) == 3
        assert len({tuple(hypothesis.tokens) for hypothesis in hypotheses}) == 1
    search = Search(40, n_best=40, sampling=Sampling(seed=3), **options)
    for limit in (1, 2, 3):
        ((*hypotheses,),) = search_all(model(), [Request([5, 6, 2], limit, reserve_eos=reserve_eos)], search)
        assert len(hypotheses) == 40
        assert {hypothesis.finished for hypothesis in hypotheses} == {False, True}
        assert {len(hypothesis.tokens) for hypothesis in hypotheses if not hypothesis.finished} == {limit - reserve_eos}
