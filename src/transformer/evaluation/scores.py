"""BLEU, chrF, chrF++ and TER by sacrebleu, with confidence intervals and paired tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from transformer.errors import ConfigError, DataError

Tokenization = Literal["13a", "intl", "zh", "char", "none"]
MetricName = Literal["BLEU", "chrF", "chrF++", "TER"]
METRICS: Final = get_args(MetricName)
USUAL: Final[tuple[MetricName, ...]] = ("BLEU", "chrF")
LOWER_IS_BETTER: Final = frozenset({"TER"})
CHRF_WORDS: Final = 2
"""Longest n-grams of words in chrF++."""


@dataclass(frozen=True)
class Score:
    """One figure for a whole test set.

    Attributes:
        name: e.g. "BLEU".
        value: 0 to 100; TER, which counts edits, may exceed 100, and is better when lower.
        signature: sacrebleu's account of the settings, without which a score cannot be compared.
        interval: half the width of the 95 % confidence interval by bootstrap; None where none was asked for.
        p_value: how probable a difference to the first system as large as this is by chance, by paired bootstrap; None
            for the first.
    """

    name: str
    value: float
    signature: str
    interval: float | None = None
    p_value: float | None = None


def chosen_metrics(names: str) -> tuple[MetricName, ...]:
    """Metrics named in a list with commas, in any case, or `all`.

    Raises:
        ConfigError: one is unknown.
    """
    if names.strip().lower() == "all":
        return METRICS
    known = {name.lower(): name for name in METRICS}
    wanted = [name.strip().lower() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise ConfigError(f"metric={name!r} is unknown; choose of {', '.join(known)}, or all")
    return tuple(dict.fromkeys(known[name] for name in wanted))


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    tokenize: Tokenization = "13a",
    *,
    metrics: Sequence[MetricName] = USUAL,
    samples: int = 0,
    warn: bool = False,
) -> list[Score]:
    """Scores of translations against one reference each, or several.

    Args:
        hypotheses: translations.
        references: what they should be; or several such lists, each of all lines.
        tokenize: how BLEU splits words: as mteval-v13a does, or one of sacrebleu's others; "none" for text that is
            tokenised already, whose figures are not comparable with those of plain text.
        metrics: which scores.
        samples: of the bootstrap that gives confidence intervals; 0 for none.
        warn: let sacrebleu say on stderr where plain text looks tokenised.

    Raises:
        DataError: there is nothing to score, or the numbers of lines differ.

    Source: Post 2018, "A Call for Clarity in Reporting BLEU Scores"; Popović 2015 and 2017 (chrF, chrF++); Snover et
    al. 2006 (TER); Koehn 2004 (bootstrap).
    """
    several = _several(references)
    _refuse_unequal(hypotheses, several)
    scores: list[Score] = []
    for name in metrics:
        metric = _metric(name, tokenize, warn)
        found = metric.corpus_score(list(hypotheses), several, n_bootstrap=max(1, samples))
        interval = float(found._ci) if samples > 1 else None
        scores.append(Score(name, found.score, str(metric.get_signature()), interval))
    return scores


def compared_scores(
    systems: Sequence[Sequence[str]],
    references: Sequence[str] | Sequence[Sequence[str]],
    tokenize: Tokenization = "13a",
    *,
    metrics: Sequence[MetricName] = USUAL,
    samples: int = 1000,
) -> list[list[Score]]:
    """As `corpus_scores` of several systems; those after the first with the probability that it is no worse by chance.

    Source: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation".
    """
    if len(systems) == 1 or samples < 2:
        return [corpus_scores(each, references, tokenize, metrics=metrics, samples=samples) for each in systems]
    from sacrebleu.significance import PairedTest  # takes a moment to load

    several = _several(references)
    for hypotheses in systems:
        _refuse_unequal(hypotheses, several)
    columns: list[list[Score]] = []
    for name in metrics:
        named: list[tuple[str, Sequence[str]]] = [
            (str(number), list(hypotheses)) for number, hypotheses in enumerate(systems)
        ]
        test = PairedTest(named, {name: _metric(name, tokenize)}, several, test_type="bs", n_samples=samples)
        signatures, results = test()
        (signature,) = signatures.values()
        (found,) = (column for title, column in results.items() if title != "System")
        columns.append([_of_result(name, result, str(signature), found[0]) for result in found])
    return [list(row) for row in zip(*columns, strict=True)]


def _of_result(name: str, result: Any, signature: str, first: Any) -> Score:
    p_value = result.p_value
    if p_value is not None and result.score == first.score:
        p_value = 1.0  # sacrebleu counts resampled differences above the real one, of which there are none here
    return Score(name, float(result.score), signature, float(result.ci), p_value)


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> list[float]:
    """ChrF of every sentence alone, 0 to 100: to find the bad ones; the mean is not the corpus score.

    Raises:
        DataError: the numbers of lines differ.
    """
    several = _several(references)
    if hypotheses or any(several):
        _refuse_unequal(hypotheses, several)
    metric = _metric("chrF")
    lines = zip(hypotheses, *several, strict=True)
    return [metric.sentence_score(ours, list(theirs)).score for ours, *theirs in lines]


def _metric(name: MetricName, tokenize: Tokenization = "13a", warn: bool = False) -> Any:
    from sacrebleu.metrics.bleu import BLEU  # takes a moment to load
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if name == "BLEU":
        return BLEU(tokenize=tokenize, force=not warn or tokenize == "none")
    metric: Any = TER() if name == "TER" else CHRF(word_order=CHRF_WORDS if name == "chrF++" else 0)
    compute = metric._compute_score_from_stats

    def in_python(counts: Any) -> Any:
        """A sample without any match is scored as Python's 0.0, others as NumPy's, of which sacrebleu takes no mean."""
        found = compute(counts)
        found.score = float(found.score)
        return found

    metric._compute_score_from_stats = in_python
    return metric


def _several(references: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """One list of all lines a reference."""
    if all(isinstance(each, str) for each in references):
        return [[str(line) for line in references]]
    return [list(each) for each in references]


def _refuse_unequal(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if not references or not any(references):
        raise DataError("there are no lines to score; give a reference with one sentence a line")
    for lines in references:
        if len(hypotheses) != len(lines):
            raise DataError(f"{len(hypotheses):,} translations, but {len(lines):,} references; they go line by line")
