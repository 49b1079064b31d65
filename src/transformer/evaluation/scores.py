"""BLEU and chrF by sacrebleu."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from transformer.errors import DataError


@dataclass(frozen=True)
class Score:
    """One figure for a whole test set.

    Attributes:
        name: e.g. "BLEU".
        value: 0 to 100.
        signature: sacrebleu's account of the settings, without which a score cannot be compared.
    """

    name: str
    value: float
    signature: str


Tokenization = Literal["13a", "intl", "zh", "char", "none"]


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: Tokenization = "13a", *, warn: bool = False
) -> list[Score]:
    """BLEU and chrF of translations against one reference each.

    Args:
        hypotheses: translations.
        references: what they should be.
        tokenize: how BLEU splits words: as mteval-v13a does, or one of sacrebleu's others; "none" for text that is
            tokenised already, whose figures are not comparable with those of plain text.
        warn: let sacrebleu say on stderr where plain text looks tokenised.

    Raises:
        DataError: there is nothing to score, or the numbers of lines differ.

    Source: Post 2018, "A Call for Clarity in Reporting BLEU Scores"; Popović 2015 (chrF).
    """
    from sacrebleu.metrics.bleu import BLEU  # takes a moment to load
    from sacrebleu.metrics.chrf import CHRF

    if not references:
        raise DataError("there are no lines to score; give a reference with one sentence a line")
    _refuse_unequal(hypotheses, references)
    metrics = {"BLEU": BLEU(tokenize=tokenize, force=not warn or tokenize == "none"), "chrF": CHRF()}
    results = {name: metric.corpus_score(list(hypotheses), [list(references)]) for name, metric in metrics.items()}
    return [Score(name, results[name].score, str(metric.get_signature())) for name, metric in metrics.items()]


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """ChrF of every sentence alone, 0 to 100: to find the bad ones; the mean is not the corpus score.

    Raises:
        DataError: the numbers of lines differ.
    """
    from sacrebleu.metrics.chrf import CHRF

    _refuse_unequal(hypotheses, references)
    metric = CHRF()
    return [metric.sentence_score(ours, [theirs]).score for ours, theirs in zip(hypotheses, references, strict=True)]


def _refuse_unequal(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses):,} translations, but {len(references):,} references; they go line by line")
