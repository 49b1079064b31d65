"""Reranking of hypotheses by a model of the other direction."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transformer import load
from transformer.decoding import Hypothesis, Search, length_normalization
from transformer.errors import ConfigError
from transformer.pipelines import auto
from transformer.pipelines.translation.reranking import Reranker, ReverseScore
from transformer.pipelines.translation.scoring import score_pairs

LINES = ["10 5 7 3", "1 2", "9 9 9 8 1", "4 0 2 7", "one two", ""]
BEAM = Search(6, n_best=6, retry_degenerate=False, max_tokens=9)


def test_hypotheses_are_ranked_by_both_directions(tiny_run: Path) -> None:
    """Catches source and translation exchanged, a weight or a length that is ignored, and n-best lists cut before."""
    weight, penalty = 3.0, BEAM.length_penalty
    plain = load(tiny_run, search=BEAM, copy=False).translations(LINES)
    reverse = load(tiny_run, precision="float32")
    reranked = load(
        tiny_run, search=replace(BEAM, n_best=2, rerank_weight=weight), rerank=tiny_run, copy=False
    ).translations(LINES)
    differs = False
    for line, before, after in zip(LINES[:-1], plain, reranked, strict=False):
        values = {}
        for alternative in before.alternatives:
            (scored,) = score_pairs(reverse, [(alternative.text, line)])
            term = weight * scored.score / penalty(len(scored.token_scores))
            values[alternative.text] = (alternative.finished, alternative.value + term)
        best = sorted(values, key=lambda text: values[text], reverse=True)[:2]
        assert [alternative.text for alternative in after.alternatives] == best
        assert after.alternatives[0].value == pytest.approx(values[best[0]][1], abs=1e-4)
        differs |= after.text != before.text
    assert differs, "both directions agreed everywhere"
    assert reranked[-1].text == ""


def reranker(*scores: ReverseScore) -> Reranker:
    """Returns a reranker whose reverse model answers with given scores; its tokenizers name the tokens."""

    class Names:
        def decode(self, tokens: Any) -> str:
            return " ".join(map(str, tokens))

    class Pair:
        source = target = Names()

    return Reranker(lambda pairs: scores[: len(pairs)], Pair())  # pyright: ignore[reportArgumentType]


def test_scores_are_means_of_tokens_with_length_normalization() -> None:
    """Catches a reverse score divided by the length of the translation: Yee et al. 2019 divide by the source's."""
    hypotheses = [Hypothesis([1], -1.0, finished=True, ranking_score=-1.0), Hypothesis([2, 3, 4], -8.0, True, -8.0)]
    search = Search(2, n_best=2, length_penalty=length_normalization(1.0), rerank_weight=0.5)
    (ranked,) = reranker(ReverseScore(-25.0, 5), ReverseScore(-5.0, 5)).rerank([[7]], [hypotheses], search)
    assert [hyp.normalized_score(search.length_penalty) for hyp in ranked] == [-8 / 4 - 0.5 * 1, -1 / 2 - 0.5 * 5]
    assert [hyp.score for hyp in ranked] == [-8.0, -1.0]


def test_what_keeps_the_order_of_the_beam() -> None:
    """Catches a cut hypothesis before one that ended, and the comparison with a score that is not a number."""
    hypotheses = [Hypothesis([1], -1.0, True, -1.0), Hypothesis([2], -2.0, False, -2.0)]
    search = Search(2, n_best=2, rerank_weight=1.0)
    (ranked,) = reranker(ReverseScore(-90.0, 1), ReverseScore(-1.0, 1)).rerank([[7]], [hypotheses], search)
    assert [hyp.tokens for hyp in ranked] == [[1], [2]]
    finished = [hypotheses[0], replace(hypotheses[1], finished=True)]
    scores = ReverseScore(-90.0, 1), ReverseScore(math.nan, 0)
    first = replace(search, n_best=1)
    assert reranker(*scores).rerank([[7]], [finished], first) == [finished[:1]]


def test_reranking_does_not_depend_on_other_lines(tiny_run: Path) -> None:
    """Catches reverse scores that depend on the batch with `deterministic`."""
    translator = load(tiny_run, search=BEAM, rerank=tiny_run, deterministic=True, workers=1)
    alone = [translator.translations([line])[0].alternatives for line in LINES]
    assert [translation.alternatives for translation in translator.translations(LINES)] == alone


@pytest.mark.parametrize(
    ("search", "options", "message"),
    [
        (Search(), {}, "rerank has no effect with beam=1, which has nothing to compare"),
        (Search(4, mbr="chrf"), {}, "mbr and rerank both rank the hypotheses"),
        (Search(4, coverage=0.2), {}, "coverage and rerank both rank the hypotheses"),
        (Search(4), {"task": "x: "}, "rerank scores lines without the prefix of a task"),
        (Search(4, rerank_weight=1.0), {"rerank": None}, "rerank_weight has no effect without rerank"),
    ],
)
def test_what_reranking_excludes(tiny_run: Path, search: Search, options: Any, message: str) -> None:
    """Catches options that have no effect together."""
    with pytest.raises(ConfigError, match=message):
        load(tiny_run, search=search, **{"rerank": tiny_run, **options})


def test_a_model_of_the_same_direction_is_refused(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the model itself given as its reverse, which would rank by noise."""
    monkeypatch.setattr(auto, "recorded_languages", lambda _: ("en", "de"))
    with pytest.raises(ConfigError, match="translates from en to de; rerank needs a model from de to en"):
        auto.load(tiny_run, search=Search(4), rerank=tiny_run)
    with pytest.raises(ConfigError, match="coverage and rerank_weight both rank"):
        Search(4, coverage=0.2, rerank_weight=1.0)
