"""Checks of line pairs, in comparison with all other pairs of the corpus."""

import heapq
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from transformer.data.quality.findings import EXAMPLES, CorpusLine, Findings
from transformer.data.quality.kept_spans import pair_differences
from transformer.data.quality.language import LanguageModel, language_odds, unusual_scripts
from transformer.data.quality.shifts import AlignedBlock
from transformer.data.quality.traits import has_list_mark
from transformer.text.lines import MAX_LINE_CHARACTERS, is_overlong

MOST_WORDS, MOST_CHARACTERS, MOST_RATIO, FEW_CHARACTERS, COPY_WORDS = 200, 1500, 3.0, 15, 3
OTHER_SIDE_NATS, OTHER_SIDE_MEAN, FOREIGN_DEVIATIONS, FOREIGN_SHARE = -20.0, -0.4, -4.0, 0.25
MIN_TRIGRAMS, LANGUAGES_DIFFER = 12, 0.5
WORST, UNUSUAL_LENGTH = 20, 2.0
NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, order=True)
class WorstPair:
    """A pair with a bad fit.

    Attributes:
        fit: Log odds, in nats, that the two lines belong together; positive for good pairs.
        source: Source line.
        target: Target line.
        reason: Evidence against the pair.
    """

    fit: float
    source: CorpusLine = field(compare=False)
    target: CorpusLine = field(compare=False)
    reason: str = field(compare=False)


@dataclass
class PairChecks:
    """Checks pairs block by block; keeps 28 bytes per pair to detect repetitions.

    Attributes:
        names: Names of the two files.
        findings: Collection to which findings are added.
        languages: Languages of the two files (BCP 47); empty if not known.
        worst: The worst pairs so far.
        judged: Number of pairs whose fit was estimated.
        poor: Number of those pairs that fit no better than chance.
    """

    names: tuple[str, str]
    findings: Findings
    languages: tuple[str, str] = ("", "")
    worst: list[WorstPair] = field(default_factory=list)
    judged: int = 0
    poor: int = 0
    _pair_hashes: tuple["array[int]", "array[int]", "array[int]"] = field(
        default_factory=lambda: (array("q"), array("q"), array("q"))
    )
    _lines: "array[int]" = field(default_factory=lambda: array("i"))

    def add(self, block: AlignedBlock) -> None:
        """Checks the pairs of a block according to its alignment."""
        rows = [(row, partner) for row, partner in enumerate(block.partners()) if partner is not None]
        pairs = [self._corpus_lines(block, row, partner) for row, partner in rows]
        if not pairs:
            return
        lengths = np.array([[len(source.text), len(target.text)] for source, target in pairs], float) + FEW_CHARACTERS
        ratios = np.log(lengths[:, 1] / lengths[:, 0])
        ratios -= np.median(ratios)
        for (source, target), ratio in zip(pairs, ratios.tolist(), strict=True):
            self._check(source, target, ratio)
            self._lines.append(source.line)
            for hashes, key in zip(
                self._pair_hashes, (source.text, target.text, (source.text, target.text)), strict=True
            ):
                hashes.append(hash(key))
        self._check_languages(pairs)
        self._rank_worst(block, pairs, [row for row, _ in rows], ratios)

    def finish(self) -> None:
        """Counts repeated pairs and lines with several partners, which needs the whole corpus."""
        source, target, pair = (np.frombuffer(hashes, np.int64) for hashes in self._pair_hashes)
        unique, first = np.unique(pair, return_index=True)
        self.findings["duplicate"].count = len(pair) - len(unique)
        self.findings["several-targets"].count = _count_repeated(source[first])
        self.findings["several-sources"].count = _count_repeated(target[first])

    def repeats(self) -> list[tuple[int, int]]:
        """Returns the source lines of the first pairs that repeat an earlier pair, each with the line of that pair."""
        pair = np.frombuffer(self._pair_hashes[2], np.int64)
        _, first, inverse = np.unique(pair, return_index=True, return_inverse=True)
        again = np.flatnonzero(first[inverse] != np.arange(len(pair)))[:EXAMPLES]
        return [(self._lines[row], self._lines[first[inverse[row]]]) for row in again.tolist()]

    def _corpus_lines(self, block: AlignedBlock, row: int, partner: int) -> tuple[CorpusLine, CorpusLine]:
        return (
            CorpusLine(self.names[0], block.first_source + row + 1, block.source[row]),
            CorpusLine(self.names[1], block.first_target + partner + 1, block.target[partner]),
        )

    def _check(self, source: CorpusLine, target: CorpusLine, log_ratio: float) -> None:
        texts = source.text.strip(), target.text.strip()
        if not all(texts):
            sides = [name for name, text in zip(("source", "target"), texts, strict=True) if not text]
            self.findings.add("empty", (source, target), f"{' and '.join(sides)} empty")
            return
        marks = has_list_mark(source.text), has_list_mark(target.text)
        if marks[0] != marks[1]:
            self.findings.add("list-mark", (source, target), f"in the {'source' if marks[0] else 'target'} only")
        if texts[0] == texts[1] and len(texts[0].split()) >= COPY_WORDS:
            self.findings.add("copy", (source,), f"line {target.line:,} of {target.file} is the same")
        if abs(log_ratio) > np.log(MOST_RATIO):
            self.findings.add("length-ratio", (source, target), _length_reason(log_ratio))
        for kind, reason in pair_differences(*texts, self.languages):
            self.findings.add(kind, (source, target), reason)
        n_words = max(len(text.split()) for text in texts)
        n_characters = max(map(len, texts))
        if n_words > MOST_WORDS or n_characters > MOST_CHARACTERS:
            more = "more than " if any(map(is_overlong, texts)) else ""
            reason = f"{more}{n_words:,} words, {min(n_characters, MAX_LINE_CHARACTERS):,} characters"
            self.findings.add("too-long", (source, target), reason)

    def _check_languages(self, pairs: Sequence[tuple[CorpusLine, CorpusLine]]) -> None:
        sides = [[pair[side] for pair in pairs] for side in (0, 1)]
        texts = [[line.text for line in corpus_lines] for corpus_lines in sides]
        models = [LanguageModel.learn(lines) for lines in texts]
        for side, corpus_lines in enumerate(sides):
            flagged = set[int]()
            for row, reason in unusual_scripts(texts[side]):
                flagged.add(row)
                self.findings.add("script", (corpus_lines[row],), reason)
            for row, kind in _misplaced_lines(texts[side], models[side], models[1 - side]):
                if row not in flagged:
                    self.findings.add(kind, pairs[row], f"concerns the line of {corpus_lines[row].file}")

    def _rank_worst(
        self,
        block: AlignedBlock,
        pairs: Sequence[tuple[CorpusLine, CorpusLine]],
        rows: list[int],
        ratios: NDArray[np.float64],
    ) -> None:
        """Keeps the worst pairs, without ranges of poor fit, which are reported as a whole."""
        if block.alignment is None:
            return
        fit = block.alignment.fit[rows]
        is_poor = np.zeros(len(block.source), bool)
        for first, last in block.poor_ranges():
            is_poor[first:last] = True
        is_filled = np.array([bool(source.text.strip() and target.text.strip()) for source, target in pairs])
        single = ~is_poor[rows] & is_filled
        self.judged += int(single.sum())
        self.poor += int((single & (fit < 0)).sum())
        candidates = np.flatnonzero(single & (fit < 0))
        for index in candidates[np.argsort(fit[candidates], kind="stable")][:WORST].tolist():
            source, target = pairs[index]
            reason = _reason(source, target, float(ratios[index]))
            self.worst.append(WorstPair(round(float(fit[index]), 2), source, target, reason))
        self.worst = heapq.nsmallest(WORST, self.worst)


def _misplaced_lines(lines: list[str], same_side: LanguageModel, other_side: LanguageModel) -> list[tuple[int, str]]:
    """Returns rows in the language of the other side or of neither side, the clearest first."""
    odds, sizes, best = language_odds(lines, same_side, other_side)
    means = odds / np.maximum(sizes, 1)
    usual = float(np.median(means))
    if usual < LANGUAGES_DIFFER:  # one language on both sides, or too little text
        return []
    centre = np.median(best)
    spread = 1.4826 * np.median(np.abs(best - centre)) + 1e-9  # estimates the standard deviation
    deviations = (best - centre) / spread * np.sqrt(sizes / max(1, np.median(sizes)))
    swapped = (odds < OTHER_SIDE_NATS) & (means < OTHER_SIDE_MEAN) & (sizes >= MIN_TRIGRAMS)
    foreign = (deviations < FOREIGN_DEVIATIONS) & (means < FOREIGN_SHARE * usual) & (sizes >= MIN_TRIGRAMS) & ~swapped
    kinds = np.where(swapped, "other-side", np.where(foreign, "foreign", ""))
    return [(row, str(kinds[row])) for row in np.argsort(odds).tolist() if kinds[row]]


def _reason(source: CorpusLine, target: CorpusLine, log_ratio: float) -> str:
    reasons = [_length_reason(log_ratio)] if abs(log_ratio) > np.log(UNUSUAL_LENGTH) else []
    numbers = [set(NUMBER.findall(line.text)) for line in (source, target)]
    if all(numbers) and not numbers[0] & numbers[1]:
        reasons.append("different numbers")
    return "; ".join([*reasons, "its words rarely occur together in other pairs"])


def _length_reason(log_ratio: float) -> str:
    longer = "target" if log_ratio > 0 else "source"
    return f"{longer} {np.exp(abs(log_ratio)):.1f} times as long as usual"


def _count_repeated(hashes: NDArray[np.int64]) -> int:
    return int((np.unique(hashes, return_counts=True)[1] > 1).sum())
