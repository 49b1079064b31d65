"""Minimum Bayes risk: the sample that is most like all others."""

from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU

from transformer import load
from transformer.decoding import Hypothesis, Sampling, Search
from transformer.errors import ConfigError
from transformer.options.search import Utility
from transformer.pipelines.translation.bayes_risk import pairwise_bleu, pairwise_chrf, rank_by_risk

TEXTS = ["Der Hund schläft.", "Der Hund schläft nicht.", "", "a", "Ein  Hund\tschläft .", "中文", "Der Hund schläft."]


def test_scores_of_pairs_are_those_of_sacrebleu() -> None:
    """Catches precision and recall exchanged, spaces that count, short texts without long n-grams, and empty ones."""
    chrf, bleu = pairwise_chrf(TEXTS), pairwise_bleu(TEXTS)
    for row, text in enumerate(TEXTS):
        for column, other in enumerate(TEXTS):
            assert chrf[row, column] == pytest.approx(sacrebleu.sentence_chrf(text, [other]).score)
            expected = BLEU(effective_order=True).sentence_score(text, [other]).score
            assert bleu[row, column] == pytest.approx(expected)


def test_the_text_most_like_the_others_comes_first() -> None:
    """Catches the one least like them, equal ones in another order, and a text that was cut before one that ended."""
    words = ["der Hund schläft", "die Katze wacht", "der Hund schlief", "der Hund schläft", "der Hund schläft jetzt"]
    hypotheses = [Hypothesis([n], -float(n), n != 3, -float(n)) for n in range(len(words))]
    ranked = rank_by_risk(hypotheses, lambda tokens: words[tokens[0]], "chrf")
    mean = [np.mean([sacrebleu.sentence_chrf(word, [other]).score for other in words]) for word in words]
    order = [hypothesis.tokens[0] for hypothesis in ranked]
    assert order[-2:] == [1, 3]
    assert [mean[n] for n in order[:-1]] == sorted((mean[n] for n in order[:-1]), reverse=True)


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
def test_a_translation_is_chosen_among_its_samples(tiny_run: Path, utility: Utility) -> None:
    """Catches samples that are dropped before they are compared, and more alternatives than were asked for."""
    lines = ["10 5 7 3", "1 2", "9 9 9 8 1", "4 0 2 7"]
    options = {"sampling": Sampling(temperature=2.0, seed=3), "retry_degenerate": False, "max_tokens": 9}
    samples = load(tiny_run, search=Search(12, n_best=12, **options), copy=False).translations(lines)  # pyright: ignore[reportArgumentType]
    chosen = load(tiny_run, search=Search(12, n_best=2, mbr=utility, **options), copy=False).translations(lines)  # pyright: ignore[reportArgumentType]
    differs = False
    for sampled, translation in zip(samples, chosen, strict=True):
        texts = [alternative.text for alternative in sampled.alternatives if alternative.finished]
        scores = pairwise_chrf if utility == "chrf" else pairwise_bleu
        everything = [alternative.text for alternative in sampled.alternatives]
        expected = dict(zip(everything, scores(everything).mean(axis=1), strict=True))
        assert translation.text == max(texts or everything, key=lambda text: expected[text])
        assert len(translation.alternatives) == 2
        differs |= translation.text != sampled.text
    assert differs, "the most probable sample was always the one most like the others"


def test_what_mbr_excludes() -> None:
    """Catches options that have no effect together."""
    with pytest.raises(ConfigError, match="mbr has no effect with beam=2"):
        Search(2, mbr="chrf")
    with pytest.raises(ConfigError, match="mbr and coverage both rank"):
        Search(4, mbr="chrf", coverage=0.2)
    assert np.isfinite(pairwise_chrf(["", ""])).all()
