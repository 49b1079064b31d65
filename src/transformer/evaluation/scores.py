"""BLEU, chrF, chrF++ and TER by sacrebleu, and scores of trees, with confidence intervals and paired tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from transformer.errors import ConfigError, DataError
from transformer.evaluation.tokenization import UNSPACED, Tokenization, TokenizationChoice, fitting_tokenization

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.bleu import BLEU

MetricName = Literal["BLEU", "chrF", "chrF++", "TER", "brackets", "complete"]
TEXT_METRICS: Final[tuple[MetricName, ...]] = ("BLEU", "chrF", "chrF++", "TER")
TREE_METRICS: Final[tuple[MetricName, ...]] = ("brackets", "complete")
"""Metrics of lines that are trees, see `transformer.text.trees`."""
DEFAULT_METRICS: Final[tuple[MetricName, ...]] = ("BLEU", "chrF")
LOWER_IS_BETTER: Final = frozenset({"TER"})
SentenceStatistics = list[list[float]]
"""Counts of one metric, of each sentence."""
CHRF_WORDS: Final = 2
"""Maximum order of word n-grams in chrF++."""


@dataclass(frozen=True)
class Score:
    """Score of a whole test set.

    Attributes:
        name: Name of the metric, e.g. "BLEU".
        value: Score from 0 to 100. TER, which counts edits, may exceed 100, and lower is better.
        signature: sacrebleu's signature of the settings, without which scores cannot be compared.
        interval: Half of the width of the 95 % bootstrap confidence interval; None if not computed.
        p_value: Probability of a difference to the first system at least as large as the observed one by chance, by
            paired bootstrap; None for the first system.
    """

    name: str
    value: float
    signature: str
    interval: float | None = None
    p_value: float | None = None


def parse_metrics(names: str) -> tuple[MetricName, ...]:
    """Parses a comma-separated list of metric names, in any case, or `all`, which are those of texts.

    Raises:
        ConfigError: A name is unknown.
    """
    if names.strip().lower() == "all":
        return TEXT_METRICS
    known: dict[str, MetricName] = {name.lower(): name for name in get_args(MetricName)}
    requested = [name.strip().lower() for name in names.split(",")]
    for name in requested:
        if name not in known:
            raise ConfigError(f"metric={name!r} is unknown; choose from {', '.join(known)}, or all")
    return tuple(dict.fromkeys(known[name] for name in requested))


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    tokenize: TokenizationChoice = "auto",
    *,
    metrics: Sequence[MetricName] = DEFAULT_METRICS,
    samples: int = 0,
) -> list[Score]:
    """Scores translations against one or more references.

    Args:
        hypotheses: Translations, one per line.
        references: Reference translations, or several such lists of the same length.
        tokenize: Tokenization of BLEU: that of mteval-v13a, or another of sacrebleu; "auto" takes the one that fits the
            references. "none" is for text that is already tokenised; its scores are not comparable with those of plain
            text. TER splits Asian text if the tokenization is one for text without spaces.
        metrics: Names of the metrics.
        samples: Number of bootstrap samples for confidence intervals; 0 omits them.

    Raises:
        DataError: The input is empty, or the numbers of lines differ.

    Source: Post 2018, "A Call for Clarity in Reporting BLEU Scores"; Popović 2015 and 2017 (chrF, chrF++); Snover et
    al. 2006 (TER); Koehn 2004 (bootstrap); see `evaluation.brackets` for trees.
    """
    (scores,) = compare_scores([hypotheses], references, tokenize, metrics=metrics, samples=samples)
    return scores


def compare_scores(
    systems: Sequence[Sequence[str]],
    references: Sequence[str] | Sequence[Sequence[str]],
    tokenize: TokenizationChoice = "auto",
    *,
    metrics: Sequence[MetricName] = DEFAULT_METRICS,
    samples: int = 1000,
) -> list[list[Score]]:
    """Scores several systems; same as `corpus_scores`, but with p-values of the differences to the first system.

    Source: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation".
    """
    reference_lists = _as_reference_lists(references)
    for hypotheses in systems:
        _check_line_counts(hypotheses, reference_lists)
    tokenization = resolve_tokenization(tokenize, reference_lists)
    statistics = sentence_statistics(systems, reference_lists, tokenization, metrics)
    return scores_of_statistics(statistics, len(reference_lists), tokenization, metrics=metrics, samples=samples)


def sentence_statistics(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    tokenization: Tokenization,
    metrics: Sequence[MetricName] = DEFAULT_METRICS,
) -> list[list[SentenceStatistics]]:
    """Returns the counts of each sentence that scores are computed from, of each metric of each system.

    Counts of parts of a text, one after another, are those of the whole text.
    """
    made: list[Any] = [_metric(name, tokenization) for name in metrics]
    return [
        [metric._extract_corpus_statistics(list(hypotheses), references) for metric in made] for hypotheses in systems
    ]


def scores_of_statistics(
    statistics: Sequence[Sequence[SentenceStatistics]],
    n_references: int,
    tokenization: Tokenization,
    *,
    metrics: Sequence[MetricName] = DEFAULT_METRICS,
    samples: int = 1000,
) -> list[list[Score]]:
    """Scores systems from the counts of their sentences; same as `compare_scores`.

    Args:
        statistics: Counts of each metric of each system, see `sentence_statistics`.
        n_references: Number of references of each sentence.
        tokenization: Tokenization of BLEU.
        metrics: Names of the metrics.
        samples: Number of bootstrap samples; 0 omits confidence intervals and p-values.
    """
    from sacrebleu.significance import PairedTest  # takes a moment to load

    columns: list[list[Score]] = []
    for number, name in enumerate(metrics):
        counts = [system[number] for system in statistics]
        metric = _with_statistics(_metric(name, tokenization), counts, n_references)
        systems: list[tuple[str, Sequence[str]]] = [
            (str(index), [str(index)] * len(column)) for index, column in enumerate(counts)
        ]
        if len(systems) == 1 or samples < 2:
            column: list[Score] = []
            for _, hypotheses in systems:
                result = metric.corpus_score(hypotheses, [hypotheses], n_bootstrap=max(1, samples))
                interval = float(result._ci) if samples > 1 else None
                column.append(Score(name, result.score, str(metric.get_signature()), interval))
            columns.append(column)
            continue
        test = PairedTest(systems, {name: metric}, None, test_type="bs", n_samples=samples)
        signatures, results = test()
        (signature,) = signatures.values()
        (results_of_systems,) = (column for title, column in results.items() if title != "System")
        columns.append(
            [_make_score(name, result, str(signature), results_of_systems[0]) for result in results_of_systems]
        )
    return [list(row) for row in zip(*columns, strict=True)]


def _with_statistics(metric: Any, counts: Sequence[SentenceStatistics], n_references: int) -> Any:
    """Returns a metric that looks up the counts of a system, whose hypotheses are its number."""
    metric._extract_corpus_statistics = lambda hypotheses, references: counts[int(hypotheses[0])]
    metric.num_refs = n_references
    return metric


def _make_score(name: str, result: Any, signature: str, first: Any) -> Score:
    p_value = result.p_value
    if p_value is not None and result.score == first.score:
        p_value = 1.0  # sacrebleu counts resampled differences above the observed one; with equal scores there are none
    return Score(name, float(result.score), signature, float(result.ci), p_value)


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> list[float]:
    """Computes the chrF of every sentence, 0 to 100, to find the bad ones; their mean is not the corpus score.

    A blank translation of a blank reference scores 100.

    Raises:
        DataError: The numbers of lines differ.
    """
    reference_lists = _as_reference_lists(references)
    if hypotheses or any(reference_lists):
        _check_line_counts(hypotheses, reference_lists)
    metric = _metric("chrF")
    lines = zip(hypotheses, *reference_lists, strict=True)
    return [
        100.0 if is_rightly_blank(hypothesis, expected) else metric.sentence_score(hypothesis, expected).score
        for hypothesis, *expected in lines
    ]


def is_rightly_blank(translation: str, references: Sequence[str]) -> bool:
    """Whether a translation is blank, and so is one of its references."""
    return not translation.strip() and any(not reference.strip() for reference in references)


def resolve_tokenization(
    tokenize: TokenizationChoice, references: Sequence[Sequence[str]], language: str | None = None
) -> Tokenization:
    """Returns the tokenization that was asked for, or the one that fits the references."""
    if tokenize != "auto":
        return tokenize
    return fitting_tokenization([line for lines in references for line in lines], language)


def _metric(name: MetricName, tokenize: Tokenization = "13a") -> "Metric":
    from sacrebleu.metrics.chrf import CHRF  # takes a moment to load
    from sacrebleu.metrics.ter import TER

    if name == "BLEU":
        return make_bleu(tokenize)
    if name in ("brackets", "complete"):
        from transformer.evaluation.brackets import BracketMetric  # as above

        return BracketMetric(name)
    is_unspaced = tokenize in UNSPACED
    metric: Any = (
        TER(normalized=is_unspaced, asian_support=is_unspaced)
        if name == "TER"
        else CHRF(word_order=CHRF_WORDS if name == "chrF++" else 0)
    )
    compute = metric._compute_score_from_stats

    def compute_as_float(counts: Any) -> Any:
        """Converts scores to Python floats.

        Samples without any match have Python's 0.0, others NumPy floats, and sacrebleu cannot average a mixture.
        """
        result = compute(counts)
        result.score = float(result.score)
        return result

    metric._compute_score_from_stats = compute_as_float
    return metric


def make_bleu(tokenize: Tokenization) -> "BLEU":
    """Makes sacrebleu's BLEU, without its warnings about plain text that looks tokenised.

    Raises:
        ConfigError: The tokenization needs packages that are not installed.
    """
    from sacrebleu.metrics.bleu import BLEU  # takes a moment to load

    try:
        return BLEU(tokenize=tokenize, force=True)
    except RuntimeError as error:  # only ja-mecab needs other packages
        raise ConfigError(
            f"tokenize={tokenize!r} needs the packages mecab-python3 and ipadic; pip install 'sacrebleu[ja]'"
        ) from error


def _as_reference_lists(references: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """Returns one list of lines per reference."""
    if all(isinstance(reference, str) for reference in references):
        return [[str(line) for line in references]]
    return [list(reference) for reference in references]


def _check_line_counts(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if not references or not any(references):
        raise DataError("nothing to score; give a reference with one sentence per line")
    for lines in references:
        if len(hypotheses) != len(lines):
            raise DataError(
                f"{len(hypotheses):,} translations, but {len(lines):,} references; give one reference line for each"
            )
