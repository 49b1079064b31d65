"""Beam search against brute force and against a plain search over lists."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from transformer.blocks import causal_mask, padding_mask
from transformer.cli.search import chosen_beam
from transformer.decoding import (
    Beam,
    Hypothesis,
    beam_search,
    greedy,
    length_normalization,
    paper_length_penalty,
)
from transformer.errors import ConfigError
from transformer.transformer import Transformer, build_transformer

EOS, WRITABLE = 2, (2, 4, 5, 6)
PENALTIES = [paper_length_penalty(0.0), paper_length_penalty(0.6), length_normalization(1.0)]


def model_of(seed: int, vocabulary: int = 7, ends: float = 0.5) -> Transformer:
    """A random model whose distributions are neither flat nor certain."""
    torch.manual_seed(seed)
    model = build_transformer(vocabulary, vocabulary, 12, 40, d_model=16, N=1, h=2, d_ff=20, dropout=0.0)
    with torch.no_grad():
        model.projection_layer.proj.weight.mul_(3)
        assert model.projection_layer.proj.bias is not None
        model.projection_layer.proj.bias[EOS] = ends
    return model.eval()


def sources(seed: int, rows: int, vocabulary: int = 7) -> Tensor:
    """Padded sources of 1 to 6 tokens and EOS."""
    generator = torch.Generator().manual_seed(seed)
    src = torch.zeros(rows, 7, dtype=torch.long)
    for row in range(rows):
        n = int(torch.randint(1, 7, (1,), generator=generator))
        src[row, :n] = torch.randint(4, vocabulary, (n,), generator=generator)
        src[row, n] = EOS
    return src


@torch.no_grad()
def next_log_p(model: Transformer, src: Tensor, tokens: tuple[int, ...]) -> list[float]:
    """One sentence, no cache, no batch; float32 as the model is."""
    tgt = torch.tensor([[1, *tokens]])
    return model(src[src != 0][None], tgt, None, causal_mask(tgt.size(1)))[0, -1].log_softmax(-1).tolist()


def forced_score(model: Transformer, src: Tensor, tokens: tuple[int, ...]) -> float:
    """Log-probability of a whole target."""
    return sum(next_log_p(model, src, tokens[:i])[token] for i, token in enumerate(tokens))


def by_lists(
    model: Transformer, src: Tensor, limit: int, size: int, penalty: Callable[[int], float], *, exhaustive: bool
) -> list[Hypothesis]:
    """The search that `beam_search` describes, for one sentence, with lists."""
    followed: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    ended: list[Hypothesis] = []
    vocabulary = [token for token in range(model.projection_layer.proj.out_features) if token not in (0, 1, 3)]
    for length in range(1, limit + 1):
        found = []
        for tokens, score in followed:
            log_p = next_log_p(model, src, tokens)
            found += [((*tokens, token), score + log_p[token]) for token in vocabulary]
        found.sort(key=lambda pair: -pair[1])
        ended += [Hypothesis(list(t[:-1]), s, finished=True) for t, s in found[:size] if t[-1] == EOS]
        followed = [pair for pair in found[: 2 * size] if pair[0][-1] != EOS][:size]
        ended.sort(key=lambda h: -h.score / penalty(len(h.tokens) + 1))
        if len(ended) >= size:
            worst = ended[size - 1].score / penalty(len(ended[size - 1].tokens) + 1)
            if not exhaustive or followed[0][1] / penalty(limit) <= worst:
                return ended[:size]
        if length == limit:
            break
    cut = [Hypothesis(list(t), s, finished=False) for t, s in followed]
    cut.sort(key=lambda h: -h.score / penalty(len(h.tokens)))
    return [*ended, *cut][:size]


def search(model: Transformer, src: Tensor, limits: Tensor, beam: Beam) -> list[list[Hypothesis]]:
    return beam_search(model, src, padding_mask(src), limits, beam)


def same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    assert [h.finished for h in found] == [h.finished for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-4)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_full_beam_is_brute_force(seed: int, penalty: Callable[[int], float]) -> None:
    """Catches a best hypothesis that is lost: stopped too early, a wrong penalty, a wrong sum."""
    model, src, limit = model_of(seed), sources(seed, 2), 4
    beam = Beam(size=4**limit, penalty=penalty, stopping="exhaustive")
    bodies = [body for n in range(limit) for body in itertools.product(WRITABLE[1:], repeat=n)]
    for row, found in enumerate(search(model, src, torch.tensor([limit, limit]), beam)):
        scores = {body: forced_score(model, src[row], (*body, EOS)) for body in bodies}
        best = sorted(bodies, key=lambda body: -scores[body] / penalty(len(body) + 1))
        assert [tuple(h.tokens) for h in found[:10]] == best[:10]
        assert [h.score for h in found[:10]] == pytest.approx([scores[body] for body in best[:10]], abs=1e-4)


@pytest.mark.parametrize("stopping", ["early", "exhaustive"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_narrow_beam_is_the_search_over_lists(size: int, penalty: Callable[[int], float], stopping: str) -> None:
    """Catches beams mixed up between rows, in the cache or in the tokens; candidates counted wrongly; wrong stops."""
    model, src = model_of(size, vocabulary=13), sources(size, 5, vocabulary=13)
    limits = torch.tensor([9, 3, 12, 7, 1])
    found = search(model, src, limits, Beam(size, penalty, stopping))
    for row, limit in enumerate(limits.tolist()):
        expected = by_lists(model, src[row], limit, size, penalty, exhaustive=stopping == "exhaustive")
        same(found[row], expected)


def test_the_models_of_these_tests_prune() -> None:
    """Guards the tests above: a narrow beam must miss what a wide one finds, or pruning was never tried."""
    model, src = model_of(5, vocabulary=13), sources(5, 5, vocabulary=13)
    limits = torch.full((5,), 9)
    narrow, wide = (search(model, src, limits, Beam(size, PENALTIES[0], "exhaustive")) for size in (2, 64))
    assert any(n[0].tokens != w[0].tokens for n, w in zip(narrow, wide, strict=True))


def test_a_beam_of_one_is_greedy() -> None:
    """Catches a second-best continuation that is followed after the best one ended."""
    model, src = model_of(1, vocabulary=13), sources(1, 6, vocabulary=13)
    limits = torch.tensor([9, 3, 12, 7, 1, 5])
    expected = greedy(model, src, padding_mask(src), limits)
    assert [found[0] for found in search(model, src, limits, Beam(1))] == expected


def test_what_never_ends_is_cut_and_comes_last() -> None:
    """Catches a cut hypothesis before one that ended, or none at all where EOS never comes."""
    model, src = model_of(2, ends=-60.0), sources(2, 2)
    found = search(model, src, torch.tensor([5, 3]), Beam(3))
    assert [[len(h.tokens) for h in row] for row in found] == [[5, 5, 5], [3, 3, 3]]
    assert not any(h.finished for row in found for h in row)
    model = model_of(2, ends=0.0)
    kinds = [[h.finished for h in row] for row in search(model, sources(3, 8), torch.full((8,), 2), Beam(5))]
    assert any(len(set(row)) == 2 for row in kinds)
    assert all(row == sorted(row, reverse=True) for row in kinds)


def test_a_beam_wider_than_the_vocabulary() -> None:
    """Catches candidates that do not exist: at the first step there are only four."""
    found = search(model_of(3), sources(3, 2), torch.tensor([1, 2]), Beam(50, stopping="exhaustive"))
    assert len(found[0]) == 4  # EOS, and three that are cut
    assert all(torch.isfinite(torch.tensor(h.score)) for row in found for h in row)


def test_penalties_by_hand() -> None:
    """Catches a formula mistaken, and defaults of the command line swapped: (5 + 7) / 6 = 2, and 7 itself."""
    assert paper_length_penalty(0.5)(7) == pytest.approx(2**0.5)
    assert length_normalization(1.0)(7) == 7
    assert chosen_beam(4, "paper", None).penalty(7) == pytest.approx(2**0.6)
    assert chosen_beam(4, "normalize", None).penalty(7) == 7
    assert chosen_beam(3, "normalize", 2.0).penalty(7) == 49
    assert chosen_beam(3, "paper", 1.0).size == 3


def test_what_is_no_beam_is_refused() -> None:
    """Catches a division by zero, a search that is silently another one, and a penalty that falls or overflows."""
    with pytest.raises(ConfigError, match="beam size=0 is below 1; choose 1 for greedy search"):
        Beam(0)
    with pytest.raises(ConfigError, match="stopping='never' is unknown; choose 'early' or 'exhaustive'"):
        Beam(4, stopping="never")
    for penalty in (paper_length_penalty, length_normalization):
        for alpha in (-1.0, 400.0, float("nan")):
            with pytest.raises(ConfigError, match=r"alpha=.* is not between 0 and 10; choose e\.g\. 0\.6"):
                penalty(alpha)


def test_a_model_of_nan_still_gives_a_line() -> None:
    """Catches a row without any hypothesis, where every score is NaN."""
    model, src = model_of(1), sources(1, 2)
    with torch.no_grad():
        model.projection_layer.proj.weight.fill_(torch.nan)
    assert all(row for row in search(model, src, torch.tensor([3, 3]), Beam(3)))
