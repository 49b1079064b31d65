"""Scores against values worked out by hand."""

import math

import pytest

from transformer.errors import DataError
from transformer.evaluation.scores import corpus_scores


def test_bleu_by_hand() -> None:
    """Catches swapped arguments and a score without its signature.

    Hypothesis "the cat sat on the mat now": unigrams 6/7, bigrams 5/6, trigrams 4/5, 4-grams 3/4, no brevity penalty.
    """
    bleu, chrf = corpus_scores(["the cat sat on the mat now"], ["the cat sat on the mat"])
    assert bleu.value == pytest.approx(100 * math.exp(sum(map(math.log, (6 / 7, 5 / 6, 4 / 5, 3 / 4))) / 4))
    assert bleu.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert chrf.name == "chrF"
    assert "nc:6|nw:0" in chrf.signature


def test_text_that_is_tokenised_already_is_taken_as_it_is() -> None:
    """Catches an option that is not handed on: 13a splits off the full stop, without which no four words are equal."""
    split, whole = (corpus_scores(["a b c d."], ["a b c d ."], kind)[0] for kind in ("13a", "none"))
    assert split.value == pytest.approx(100)
    assert whole.value < 100
    assert "tok:none" in whole.signature


def test_perfect_and_empty_translations() -> None:
    """Catches a crash on an empty hypothesis, and a scale of 0 to 1."""
    assert [score.value for score in corpus_scores(["a b c d e"], ["a b c d e"])] == pytest.approx([100, 100])
    assert corpus_scores([""], ["a b c d e"])[0].value == 0


def test_lines_must_match() -> None:
    """Catches scoring the shorter side."""
    with pytest.raises(DataError, match="1 translations, but 2 references; they go line by line"):
        corpus_scores(["a"], ["a", "b"])
    with pytest.raises(DataError, match="there are no lines to score"):
        corpus_scores([], [])
