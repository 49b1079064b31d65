"""Evaluation and comparison of one or more systems on one test set."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from transformer.evaluation.breakdown import (
    FrequencyBucket,
    LengthBucket,
    Line,
    by_frequency,
    by_length,
    make_word_splitter,
    most_different_lines,
    word_counts,
)
from transformer.evaluation.scores import DEFAULT_METRICS, MetricName, Score, Tokenization, compare_scores

SHOWN_LINES: Final = 10


@dataclass(frozen=True)
class EvaluationSet:
    """A test set.

    Attributes:
        sources: Source lines; None if only translations are evaluated.
        references: One list of lines per reference.
        training: Target text from which word frequencies are counted; if None, the first reference.
    """

    sources: Sequence[str] | None
    references: Sequence[Sequence[str]]
    training: Sequence[str] | None = None


@dataclass(frozen=True)
class System:
    """A named translation system and its translations."""

    name: str
    translations: Sequence[str]


@dataclass(frozen=True)
class Evaluation:
    """Scores of systems, with breakdowns.

    Attributes:
        systems: Compared systems; the others are tested against the first.
        scores: Scores of each system.
        length_of: Text whose words are counted in `lengths`: "source" or, without sources, "reference".
        lengths: Scores by sentence length.
        frequencies: F1 of words by their frequency.
        lines: Lines on which systems differ most, or the worst lines of a single system.
        empty: Number of empty translations of each system where the reference is not empty.
    """

    systems: tuple[System, ...]
    scores: tuple[tuple[Score, ...], ...]
    length_of: str
    lengths: tuple[LengthBucket, ...]
    frequencies: tuple[FrequencyBucket, ...]
    lines: tuple[Line, ...]
    empty: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """Returns the evaluation as JSON values."""
        return {
            "systems": [
                {"name": system.name, "empty": empty, "scores": {score.name: _score_json(score) for score in scores}}
                for system, empty, scores in zip(self.systems, self.empty, self.scores, strict=True)
            ],
            "by_length": [asdict(bucket) for bucket in self.lengths],
            "by_frequency": [asdict(bucket) for bucket in self.frequencies],
            "telling_lines": [asdict(line) for line in self.lines],
        }


def evaluate(
    systems: Sequence[System],
    test: EvaluationSet,
    tokenize: Tokenization = "13a",
    *,
    metrics: Sequence[MetricName] = DEFAULT_METRICS,
    samples: int = 1000,
    n_lines: int = SHOWN_LINES,
) -> Evaluation:
    """Scores systems on a test set.

    Args:
        systems: At least one system; the first is the baseline of the significance tests.
        test: Test set.
        tokenize: Tokenization of BLEU, also used for word frequencies.
        metrics: Names of the metrics.
        samples: Number of bootstrap samples; 0 omits confidence intervals and significance tests.
        n_lines: Number of lines in `Evaluation.lines`.

    Raises:
        DataError: The numbers of lines differ, or the test set is empty.
    """
    translations = [system.translations for system in systems]
    scores = compare_scores(translations, test.references, tokenize, metrics=metrics, samples=samples)
    first, words = test.references[0], make_word_splitter(tokenize)
    counts = word_counts(first if test.training is None else test.training, words)
    return Evaluation(
        tuple(systems),
        tuple(tuple(system_scores) for system_scores in scores),
        "reference" if test.sources is None else "source",
        tuple(by_length(first if test.sources is None else test.sources, translations, test.references, tokenize)),
        tuple(by_frequency(translations, first, counts, words)),
        tuple(most_different_lines(translations, test.references, n_lines)),
        tuple(_count_empty(lines, first) for lines in translations),
    )


def _count_empty(translations: Sequence[str], reference: Sequence[str]) -> int:
    pairs = zip(translations, reference, strict=True)
    return sum(not output.strip() and bool(expected.strip()) for output, expected in pairs)


def _score_json(score: Score) -> dict[str, Any]:
    figures = {"score": score.value, "signature": score.signature, "interval": score.interval, "p_value": score.p_value}
    return {name: value for name, value in figures.items() if value is not None}
