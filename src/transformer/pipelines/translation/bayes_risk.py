"""Minimum Bayes risk: of several hypotheses, the one that is on average most like the others."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from transformer.decoding import Hypothesis
from transformer.options.search import Utility

CHARACTERS, BETA = 6, 2
"""Maximum length of the n-grams of chrF, and the weight of its recall."""
Matrix = NDArray[np.float64]


def rank_by_risk(
    hypotheses: Sequence[Hypothesis], decode: Callable[[Sequence[int]], str], utility: Utility
) -> list[Hypothesis]:
    """Returns hypotheses by their expected utility, the mean of their scores against all, finished ones first.

    Args:
        hypotheses: Hypotheses of one source, the most probable first; samples may be equal, and then count twice.
        decode: Function that returns the text of tokens.
        utility: Score by which two texts are compared.

    Source: Kumar and Byrne 2004; Eikema and Aziz 2022.
    """
    texts = [decode(hypothesis.tokens) for hypothesis in hypotheses]
    expected = UTILITIES[utility](texts).mean(axis=1)
    order = sorted(range(len(texts)), key=lambda index: (not hypotheses[index].finished, -expected[index]))
    return [hypotheses[index] for index in order]


def most_like(texts: Sequence[str], reference: str) -> str:
    """Returns the text with the highest chrF against a reference; the first one of equals."""
    return texts[int(pairwise_chrf([*texts, reference])[:-1, -1].argmax())]


def pairwise_chrf(texts: Sequence[str]) -> Matrix:
    """Returns the chrF of each text (row) with each text as its reference (column), from 0 to 100.

    Source: Popović 2015, "chrF: Character n-gram F-score for Automatic MT Evaluation".
    """
    plain = ["".join(text.split()) for text in texts]
    precision, recall, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for n in range(1, CHARACTERS + 1):
        counts = _ngram_counts(plain, n)
        totals = counts.sum(axis=1)
        matches = np.minimum(counts[:, None], counts).sum(axis=2)
        is_counted = (totals[:, None] > 0) & (totals > 0)
        precision += np.divide(matches, totals[:, None], out=np.zeros_like(precision), where=is_counted)
        recall += np.divide(matches, totals, out=np.zeros_like(recall), where=is_counted)
        orders += is_counted
    precision, recall = (
        np.divide(sums, orders, out=np.zeros_like(sums), where=orders > 0) for sums in (precision, recall)
    )
    weighted = BETA**2 * precision + recall
    return 100 * np.divide(
        (1 + BETA**2) * precision * recall, weighted, out=np.zeros_like(weighted), where=weighted > 0
    )


def pairwise_bleu(texts: Sequence[str]) -> Matrix:
    """Returns the sentence BLEU of each text (row) with each text as its reference (column), from 0 to 100."""
    from sacrebleu.metrics.bleu import BLEU  # takes a moment to load

    metric = BLEU(effective_order=True)
    return np.array([[metric.sentence_score(text, [other]).score for other in texts] for text in texts])


def _ngram_counts(texts: Sequence[str], n: int) -> Matrix:
    """Returns how often each n-gram (column) occurs in each text (row)."""
    counts = [Counter(text[start : start + n] for start in range(len(text) - n + 1)) for text in texts]
    column = {ngram: index for index, ngram in enumerate(dict.fromkeys(ngram for ngrams in counts for ngram in ngrams))}
    matrix = np.zeros((len(texts), len(column)))
    for row, ngrams in enumerate(counts):
        for ngram, count in ngrams.items():
            matrix[row, column[ngram]] = count
    return matrix


UTILITIES: Final[dict[Utility, Callable[[Sequence[str]], Matrix]]] = {"chrf": pairwise_chrf, "bleu": pairwise_bleu}
