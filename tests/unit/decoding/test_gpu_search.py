"""Searches with CUDA graphs: the same steps on a CPU, and on a GPU if there is one."""

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from samples import fast_first
from shapes import unchecked_shapes
from transformer.decoding import (
    Constraint,
    Ensemble,
    Hypothesis,
    Request,
    Sampling,
    Search,
    length_normalization,
    search_all,
)
from transformer.decoding.cuda_graphs import BUCKET_SIZES, GraphedSearcher
from transformer.transformer import Transformer
from unit.decoding.tiny_search import model_of, requests

pytestmark = pytest.mark.gpu
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
SEARCHES = {
    "greedy": Search(),
    "beam": Search(beam=4, n_best=3),
    "exhaustive": Search(beam=3, n_best=3, stopping="exhaustive", length_penalty=length_normalization(1.0)),
    "not early": Search(beam=4, min_tokens=9),
    "wider than the vocabulary": Search(beam=12, n_best=12),
    "limits end": Search(beam=2, allow_unknown=True, limit_ends=True),
    "rules": Search(beam=4, no_repeat_ngram=2),
    "samples": Search(beam=3, n_best=3, sampling=Sampling(seed=5)),
}


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device to search on."""
    return torch.device(request.param)


def searcher(model: Any, search: Search, device: torch.device) -> GraphedSearcher:
    """A searcher for a model whose sources have up to 12 tokens."""
    return GraphedSearcher(model, search, device, 12)


def longest_first(limits: list[int], **options: Any) -> list[Request]:
    """Requests in the order that a searcher expects."""
    return sorted(requests(1, limits, 9, **options), key=lambda request: -len(request.source))


def assert_same(actual: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    """Checks that tokens and ends are equal, and scores up to rounding."""
    for hypotheses, references in zip(actual, expected, strict=True):
        assert [(h.tokens, h.finished) for h in hypotheses] == [(h.tokens, h.finished) for h in references]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in references], abs=1e-4)


def search_in_order(searcher: GraphedSearcher, requests: list[Request], batch_tokens: int) -> list[list[Hypothesis]]:
    """The results in the order of the requests."""
    results = dict(searcher.search_each(requests, batch_tokens))
    return [results[index] for index in range(len(requests))]


@pytest.mark.parametrize("search", fast_first(SEARCHES.values(), 2), ids=SEARCHES)
@pytest.mark.parametrize("ends", fast_first([0.5, -1.0], 1))
def test_steps_without_the_cpu_equal_the_plain_search(search: Search, ends: float, device: torch.device) -> None:
    """Catches a hypothesis mistaken for another, a step too many or too few, and state left by an earlier batch."""
    limits = [5, 37, 20, 10, 9, 16, 17, 33, 11, 12, 40]
    asked = longest_first(limits)
    asked += [replace(request, reserve_eos=True) for request in asked]
    asked.sort(key=lambda request: -len(request.source))
    with unchecked_shapes():
        expected = search_all(model_of(3, 9, ends), asked, search)
    graphed = searcher(deepcopy(model_of(3, 9, ends)).to(device), search, device)
    for batch_tokens in (24, 24, 72, 4096):  # the same shapes again, others, all at once
        assert_same(search_in_order(graphed, asked, search.beam * batch_tokens), expected)


@pytest.mark.parametrize("options", [{"prefix": (4, 5)}, {"required": (Constraint(((6, 7),)),)}])
def test_constraints_are_searched_without_graphs(options: dict[str, Any], device: torch.device) -> None:
    """Catches prefixes and required phrases that steps without the CPU would ignore."""
    asked = longest_first([9, 12], **options)
    search = Search(beam=4)
    actual = search_in_order(searcher(deepcopy(model_of(3, 9)).to(device), search, device), asked, 4096)
    assert_same(actual, search_all(model_of(3, 9), asked, search))


def test_a_state_that_cannot_be_captured_is_searched_without_graphs(device: torch.device) -> None:
    """Catches an ensemble whose state is mistaken for that of one model."""
    models = [model_of(seed, 9) for seed in (3, 4)]
    asked, search = longest_first([9, 12, 7]), Search(beam=2)
    expected = search_all(Ensemble(models), asked, search)
    graphed = searcher(Ensemble([deepcopy(model).to(device) for model in models]), search, device)
    assert_same(search_in_order(graphed, asked, 4096), expected)


def test_sources_are_not_padded_beyond_the_positions() -> None:
    """Catches padding to 16 tokens of a model that reads 12."""
    graphed = searcher(model_of(3, 9), Search(), torch.device("cpu"))
    assert len(search_in_order(graphed, longest_first([4]), 4096)) == 1


def test_graphed_batches_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches memory that grows with the number of shapes, and eviction of the batch in use."""
    search, asked = Search(beam=2), longest_first([5, 9, 20, 33, 12])
    graphed = searcher(model_of(3, 9), search, torch.device("cpu"))
    monkeypatch.setattr(graphed, "_max_bytes", 0)
    for batch_tokens in (12, 24, 48):
        assert_same(search_in_order(graphed, asked, 2 * batch_tokens), search_all(model_of(3, 9), asked, search))
        assert len(graphed._cache) == 1


class Counting(Transformer):
    """Counts its steps."""

    steps = 0

    def step(self, tokens: Any, state: Any) -> Any:
        """Same as `Transformer.step`, but counted."""
        type(self).steps += 1
        return super().step(tokens, state)


def test_steps_end_soon_after_the_last_sentence() -> None:
    """Catches steps up to the limit when all have ended."""
    model = model_of(3, 9, 9.0)
    model.__class__ = Counting
    Counting.steps = 0
    search_in_order(searcher(model, Search(), torch.device("cpu")), longest_first([39, 39, 39]), 4096)
    assert Counting.steps <= 16


def test_at_most_a_third_of_a_batch_is_padding() -> None:
    """Catches a gap in the list of bucket sizes, or one out of order."""
    assert all(small < large <= 1.5 * small or (small, large) == (1, 2) for small, large in pairwise(BUCKET_SIZES))
