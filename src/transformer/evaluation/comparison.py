"""Evaluation and comparison of one or more systems on one test set."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

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
from transformer.evaluation.line_formats import format_notes
from transformer.evaluation.scores import (
    DEFAULT_METRICS,
    MetricName,
    Score,
    SentenceStatistics,
    compare_scores,
    is_rightly_blank,
    resolve_tokenization,
    scores_of_statistics,
)
from transformer.evaluation.tokenization import Tokenization, TokenizationChoice, ter_note, tokenization_note

SHOWN_LINES: Final = 10


@dataclass(frozen=True)
class EvaluationSet:
    """A test set.

    Attributes:
        sources: Source lines; None if only translations are evaluated.
        references: One list of lines per reference.
        training: Target text from which word frequencies are counted; if None, the first reference.
        source_language: Language of the sources as a BCP 47 tag, if it is known.
        target_language: Language of the references, which selects the tokenization of BLEU.
    """

    sources: Sequence[str] | None
    references: Sequence[Sequence[str]]
    training: Sequence[str] | None = None
    source_language: str | None = None
    target_language: str | None = None


@dataclass(frozen=True)
class System:
    """A named translation system and its translations.

    Attributes:
        name: Name.
        translations: Translation of each line.
        unsure: Number of translations that its model is unsure of; None for a system that does not tell.
    """

    name: str
    translations: Sequence[str]
    unsure: int | None = None


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
        empty: Number of empty translations of each system where no reference is empty.
        tokenization: Tokenization of BLEU.
        blank_references: Number of lines with a blank reference.
        notes: Doubts about the scores, one line each.
    """

    systems: tuple[System, ...]
    scores: tuple[tuple[Score, ...], ...]
    length_of: str = "reference"
    lengths: tuple[LengthBucket, ...] = ()
    frequencies: tuple[FrequencyBucket, ...] = ()
    lines: tuple[Line, ...] = ()
    empty: tuple[int, ...] = ()
    tokenization: Tokenization = "13a"
    blank_references: int = 0
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Returns the evaluation as JSON values."""
        return {
            "systems": [
                {
                    "name": system.name,
                    "empty": empty,
                    "unsure": system.unsure,
                    "scores": {score.name: _score_json(score) for score in scores},
                }
                for system, empty, scores in zip(self.systems, self.empty, self.scores, strict=True)
            ],
            "tokenization": self.tokenization,
            "blank_references": self.blank_references,
            "notes": list(self.notes),
            "by_length": [asdict(bucket) for bucket in self.lengths],
            "by_frequency": [asdict(bucket) for bucket in self.frequencies],
            "telling_lines": [asdict(line) for line in self.lines],
        }


def evaluate(
    systems: Sequence[System],
    test: EvaluationSet,
    tokenize: TokenizationChoice = "auto",
    *,
    metrics: Sequence[MetricName] = DEFAULT_METRICS,
    samples: int = 1000,
    n_lines: int = SHOWN_LINES,
) -> Evaluation:
    """Scores systems on a test set.

    Args:
        systems: At least one system; the first is the baseline of the significance tests.
        test: Test set.
        tokenize: Tokenization of BLEU, also used for word frequencies; "auto" takes the one that fits the references.
        metrics: Names of the metrics.
        samples: Number of bootstrap samples; 0 omits confidence intervals and significance tests.
        n_lines: Number of lines in `Evaluation.lines`.

    Raises:
        DataError: The numbers of lines differ, or the test set is empty.
    """
    translations = [system.translations for system in systems]
    tokenization = resolve_tokenization(tokenize, test.references, test.target_language)
    scores = compare_scores(translations, test.references, tokenization, metrics=metrics, samples=samples)
    first, words = test.references[0], make_word_splitter(tokenization)
    counted, language = (first, test.target_language) if test.sources is None else (test.sources, test.source_language)
    counts = word_counts(first if test.training is None else test.training, words)
    summary = _summarize(systems, test, scores, tokenization, metrics)
    return replace(
        summary,
        length_of="reference" if test.sources is None else "source",
        lengths=tuple(by_length(counted, translations, test.references, tokenization, language)),
        frequencies=tuple(by_frequency(translations, first, counts, words)),
        lines=tuple(most_different_lines(translations, test.references, n_lines)),
    )


def evaluate_statistics(
    systems: Sequence[System],
    test: EvaluationSet,
    statistics: Sequence[Sequence[SentenceStatistics]],
    tokenization: Tokenization,
    *,
    metrics: Sequence[MetricName] = DEFAULT_METRICS,
    samples: int = 1000,
) -> Evaluation:
    """Scores systems from the counts of their sentences; same as `evaluate`, but without breakdowns.

    Args:
        systems: At least one system.
        test: Test set.
        statistics: Counts of each metric of each system, see `transformer.evaluation.scores.sentence_statistics`.
        tokenization: Tokenization of BLEU.
        metrics: Names of the metrics.
        samples: Number of bootstrap samples; 0 omits confidence intervals and significance tests.
    """
    scores = scores_of_statistics(statistics, len(test.references), tokenization, metrics=metrics, samples=samples)
    return _summarize(systems, test, scores, tokenization, metrics)


def _summarize(
    systems: Sequence[System],
    test: EvaluationSet,
    scores: Sequence[Sequence[Score]],
    tokenization: Tokenization,
    metrics: Sequence[MetricName],
) -> Evaluation:
    """Returns an evaluation without breakdowns."""
    return Evaluation(
        systems=tuple(systems),
        scores=tuple(tuple(system_scores) for system_scores in scores),
        empty=tuple(_count_empty(system.translations, test.references) for system in systems),
        tokenization=tokenization,
        blank_references=sum(
            any(not reference.strip() for reference in line) for line in zip(*test.references, strict=True)
        ),
        notes=tuple(_notes(systems, tokenization, test, metrics)),
    )


def _count_empty(translations: Sequence[str], references: Sequence[Sequence[str]]) -> int:
    lines = zip(translations, *references, strict=True)
    return sum(not output.strip() and not is_rightly_blank(output, expected) for output, *expected in lines)


def _notes(
    systems: Sequence[System], tokenization: Tokenization, test: EvaluationSet, metrics: Sequence[MetricName]
) -> Iterator[str]:
    for system in systems:
        yield from format_notes(system.name, system.translations, test.references[0])
    lines = [line for reference in test.references for line in reference]
    if "BLEU" in metrics and (note := tokenization_note(tokenization, lines, test.target_language)):
        yield note
    if "TER" in metrics and (note := ter_note(lines)):
        yield note


def _score_json(score: Score) -> dict[str, object]:
    figures = {"score": score.value, "signature": score.signature, "interval": score.interval, "p_value": score.p_value}
    return {name: value for name, value in figures.items() if value is not None}
