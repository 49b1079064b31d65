"""The search that makes steps without the host, on a CPU, and on a GPU where there is one."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

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

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
SEARCHES = {
    "greedy": Search(),
    "beam": Search(beam=4, n_best=3),
    "exhaustive": Search(beam=3, n_best=3, stopping="exhaustive", penalty=length_normalization(1.0)),
    "not early": Search(beam=4, min_tokens=9),
    "wider than the vocabulary": Search(beam=12, n_best=12),
    "limits end": Search(beam=2, allow_unknown=True, limit_ends=True),
    "rules": Search(beam=4, no_repeat_ngram=2),
    "samples": Search(beam=3, n_best=3, sampling=Sampling(seed=5)),
}


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    """Where to search."""
    return torch.device(request.param)


def searcher(model: Any, search: Search, device: torch.device) -> GraphedSearcher:
    """Of a model whose sources have up to 12 tokens."""
    return GraphedSearcher(model, search, device, 12)


def longest_first(limits: list[int], **options: Any) -> list[Request]:
    """Requests in the order that a searcher expects."""
    return sorted(requests(1, limits, 9, **options), key=lambda request: -len(request.source))


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    """The same tokens and ends, and scores but for rounding."""
    for ours, theirs in zip(found, expected, strict=True):
        assert [(each.tokens, each.finished) for each in ours] == [(each.tokens, each.finished) for each in theirs]
        assert [each.score for each in ours] == pytest.approx([each.score for each in theirs], abs=1e-4)


def found_by(searcher: GraphedSearcher, given: list[Request], batch_tokens: int) -> list[list[Hypothesis]]:
    """In order."""
    found = dict(searcher.search_each(given, batch_tokens))
    return [found[index] for index in range(len(given))]


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("ends", [0.5, -1.0])
def test_steps_without_the_host_find_what_the_search_finds(search: Search, ends: float, device: torch.device) -> None:
    """Catches a hypothesis booked under another, a step too many or too few, and places that a batch before left."""
    limits = [5, 37, 20, 10, 9, 16, 17, 33, 11, 12, 40]
    given = longest_first(limits)
    given += [replace(each, reserve_eos=True) for each in given]
    given.sort(key=lambda request: -len(request.source))
    expected = search_all(model_of(3, 9, ends), given, search)
    ours = searcher(model_of(3, 9, ends).to(device), search, device)
    for batch_tokens in (24, 24, 72, 4096):  # the same shapes again, others, all at once
        assert_same(found_by(ours, given, search.beam * batch_tokens), expected)


@pytest.mark.parametrize("options", [{"prefix": (4, 5)}, {"required": (Constraint(((6, 7),)),)}])
def test_what_a_sentence_must_hold_is_searched_for_step_by_step(options: dict[str, Any], device: torch.device) -> None:
    """Catches prefixes and required phrases that steps without the host would pass over."""
    given = longest_first([9, 12], **options)
    search = Search(beam=4)
    found = found_by(searcher(model_of(3, 9).to(device), search, device), given, 4096)
    assert_same(found, search_all(model_of(3, 9), given, search))


def test_a_state_without_places_is_searched_with_step_by_step(device: torch.device) -> None:
    """Catches an ensemble whose states are taken for one."""
    models = [model_of(seed, 9) for seed in (3, 4)]
    given, search = longest_first([9, 12, 7]), Search(beam=2)
    expected = search_all(Ensemble(models), given, search)
    ours = searcher(Ensemble([model.to(device) for model in models]), search, device)
    assert_same(found_by(ours, given, 4096), expected)


def test_sources_are_not_filled_up_beyond_the_positions() -> None:
    """Catches padding to 16 tokens of a model that reads 12."""
    ours = searcher(model_of(3, 9), Search(), torch.device("cpu"))
    assert len(found_by(ours, longest_first([4]), 4096)) == 1


def test_boards_are_given_up_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches memory that grows with the number of shapes, and the board in use given up."""
    search, given = Search(beam=2), longest_first([5, 9, 20, 33, 12])
    ours = searcher(model_of(3, 9), search, torch.device("cpu"))
    monkeypatch.setattr(ours, "_most_bytes", 0)
    for batch_tokens in (12, 24, 48):
        assert_same(found_by(ours, given, 2 * batch_tokens), search_all(model_of(3, 9), given, search))
        assert len(ours._boards) == 1


class Counting(Transformer):
    """Counts its steps."""

    steps = 0

    def step(self, tokens: Any, state: Any) -> Any:
        """As `Transformer.step`."""
        type(self).steps += 1
        return super().step(tokens, state)


def test_steps_end_soon_after_the_last_sentence() -> None:
    """Catches steps up to the limit when all have ended."""
    model = model_of(3, 9, 9.0)
    model.__class__ = Counting
    Counting.steps = 0
    found_by(searcher(model, Search(), torch.device("cpu")), longest_first([39, 39, 39]), 4096)
    assert Counting.steps <= 16


def test_shapes_leave_a_third_of_their_places_empty_at_most() -> None:
    """Catches a gap in the list of even numbers, or one out of order."""
    assert all(small < large <= 1.5 * small or (small, large) == (1, 2) for small, large in pairwise(BUCKET_SIZES))
