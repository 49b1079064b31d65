"""Everything that is said of one or more systems on one test set."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from transformer.evaluation.breakdown import (
    FrequencyClass,
    LengthClass,
    Line,
    by_frequency,
    by_length,
    most_telling,
    word_counts,
    words_of,
)
from transformer.evaluation.scores import USUAL, MetricName, Score, Tokenization, compared_scores

SHOWN_LINES: Final = 10


@dataclass(frozen=True)
class EvaluationSet:
    """What is translated, and what the translations should be.

    Attributes:
        sources: line by line; None where only translations are at hand.
        references: one list of all lines a reference.
        training: target text that tells how often words occur; the references where it is None.
    """

    sources: Sequence[str] | None
    references: Sequence[Sequence[str]]
    training: Sequence[str] | None = None


@dataclass(frozen=True)
class System:
    """Translations under a name."""

    name: str
    translations: Sequence[str]


@dataclass(frozen=True)
class Evaluation:
    """Scores and where they come from.

    Attributes:
        systems: what was compared; others are tested against the first.
        scores: of each system.
        length_of: whose words are counted, "source" or, where there is none, "reference".
        lengths: scores by that length.
        frequencies: found words by their frequency.
        lines: on which systems differ most, or the worst of a single one.
        empty: lines of each system without a translation where the reference has one.
    """

    systems: tuple[System, ...]
    scores: tuple[tuple[Score, ...], ...]
    length_of: str
    lengths: tuple[LengthClass, ...]
    frequencies: tuple[FrequencyClass, ...]
    lines: tuple[Line, ...]
    empty: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "systems": [
                {"name": system.name, "empty": empty, "scores": {score.name: _plain(score) for score in scores}}
                for system, empty, scores in zip(self.systems, self.empty, self.scores, strict=True)
            ],
            "by_length": [asdict(each) for each in self.lengths],
            "by_frequency": [asdict(each) for each in self.frequencies],
            "telling_lines": [asdict(each) for each in self.lines],
        }


def evaluate(
    systems: Sequence[System],
    test: EvaluationSet,
    tokenize: Tokenization = "13a",
    *,
    metrics: Sequence[MetricName] = USUAL,
    samples: int = 1000,
    n_lines: int = SHOWN_LINES,
) -> Evaluation:
    """Scores systems on a test set.

    Args:
        systems: at least one; the first is the baseline of the tests.
        test: the test set.
        tokenize: how words are split.
        metrics: which scores.
        samples: of the bootstrap; 0 for neither intervals nor tests.
        n_lines: that are shown.

    Raises:
        DataError: numbers of lines differ, or there are none.
    """
    translations = [system.translations for system in systems]
    scores = compared_scores(translations, test.references, tokenize, metrics=metrics, samples=samples)
    first, words = test.references[0], words_of(tokenize)
    counts = word_counts(first if test.training is None else test.training, words)
    return Evaluation(
        tuple(systems),
        tuple(tuple(each) for each in scores),
        "reference" if test.sources is None else "source",
        tuple(by_length(first if test.sources is None else test.sources, translations, test.references, tokenize)),
        tuple(by_frequency(translations, first, counts, words)),
        tuple(most_telling(translations, test.references, n_lines)),
        tuple(_empty(lines, first) for lines in translations),
    )


def _empty(translations: Sequence[str], reference: Sequence[str]) -> int:
    pairs = zip(translations, reference, strict=True)
    return sum(not ours.strip() and bool(theirs.strip()) for ours, theirs in pairs)


def _plain(score: Score) -> dict[str, Any]:
    figures = {"score": score.value, "signature": score.signature, "interval": score.interval, "p_value": score.p_value}
    return {name: value for name, value in figures.items() if value is not None}
