"""Scores of constituency trees, by the rules of EVALB with its parameters COLLINS.prm.

A constituent is right if the reference has one with the same label over the same words. Punctuation does not count as
words, and constituents without words do not count; nor does the node around the tree. ADVP and PRT are the same label.
EVALB leaves sentences out in which the words differ. Here a line that does not form a tree of as many words as the
reference counts as a tree without constituents, so that a model gains nothing by it.

Source: Black et al. 1991; EVALB by Satoshi Sekine and Michael Collins.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

from sacrebleu.metrics.base import Metric, Score, Signature

from transformer.text.trees import PUNCTUATION, ROOTS, Constituent, constituents

TreeMetric = Literal["brackets", "complete"]
"""F1 of the constituents, or the share of trees without an error."""
Spans = tuple[Counter[Constituent], int]
"""How often each constituent that counts occurs in a tree, and its number of words."""
EQUAL_LABELS: Final = {"PRT": "ADVP"}


class BracketSignature(Signature):
    """Signature with the parameters of EVALB."""

    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self.info["evalb"] = "COLLINS"


class BracketMetric(Metric):
    """A `TreeMetric` over a whole test set, in sacrebleu's form, which gives intervals and significance tests."""

    _SIGNATURE_TYPE = BracketSignature

    def __init__(self, kind: TreeMetric) -> None:
        super().__init__()
        self.kind = kind

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": [labelled_spans(line) for line in refs]}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[int]:
        parse = labelled_spans(hypothesis)
        return max((_count(parse, gold) for gold in ref_kwargs["references"]), key=lambda counts: counts[0])

    def _compute_score_from_stats(self, stats: Sequence[int]) -> Score:
        n_matched, n_parse, n_gold, n_complete, n_trees = map(int, stats)
        if self.kind == "complete":
            return Score("complete", 100 * n_complete / n_trees)
        return Score("brackets", 200 * n_matched / (n_parse + n_gold) if n_parse + n_gold else 100.0)

    def _aggregate_and_compute(self, stats: list[list[int]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])


def labelled_spans(symbols: str) -> Spans | None:
    """Returns how often each constituent that counts occurs in a line of symbols, and the number of words.

    Returns:
        None if the line does not form a tree.
    """
    tree = constituents(symbols, PUNCTUATION)
    if tree is None:
        return None
    closed, n_words = tree
    kept = ((EQUAL_LABELS.get(label, label), start, end) for label, start, end in closed if label not in ROOTS)
    return Counter(span for span in kept if span[1] < span[2]), n_words


def _count(parse: Spans | None, gold: Spans | None) -> list[int]:
    """Returns the numbers of constituents that match, in the parse and in the gold tree; of right trees; of trees."""
    wanted = gold[0] if gold else Counter[Constituent]()
    if parse is None or gold is None or parse[1] != gold[1]:
        return [0, 0, wanted.total(), 0, 1]
    return [(parse[0] & wanted).total(), parse[0].total(), wanted.total(), int(parse[0] == wanted), 1]
