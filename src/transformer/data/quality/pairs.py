"""What can be wrong with a pair of lines, judged beside all other pairs of the corpus."""

import heapq
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from transformer.data.quality.findings import EXAMPLES, CorpusLine, Findings
from transformer.data.quality.language import LanguageModel, language_odds, unusual_scripts
from transformer.data.quality.shifts import AlignedBlock

MOST_WORDS, MOST_CHARACTERS, MOST_RATIO, FEW_CHARACTERS, COPY_WORDS = 200, 1500, 3.0, 15, 3
OTHER_SIDE_NATS, OTHER_SIDE_MEAN, FOREIGN_DEVIATIONS, FOREIGN_SHARE = -20.0, -0.4, -4.0, 0.25
MIN_TRIGRAMS, LANGUAGES_DIFFER = 12, 0.5
WORST, UNUSUAL_LENGTH = 20, 2.0
NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, order=True)
class WorstPair:
    """A pair that fits badly.

    Attributes:
        fit: log odds, in nats, that the two lines belong together; that of a good pair is above 0.
        source: the line.
        target: its partner.
        reason: what speaks against them.
    """

    fit: float
    source: CorpusLine = field(compare=False)
    target: CorpusLine = field(compare=False)
    reason: str = field(compare=False)


@dataclass
class PairChecks:
    """Judges pairs stretch by stretch; keeps 28 bytes a pair, to tell repeated ones.

    Attributes:
        names: of the two files.
        findings: filled.
        worst: the worst pairs so far.
        judged: pairs whose fit was judged.
        poor: those that fit no better than chance.
    """

    names: tuple[str, str]
    findings: Findings
    worst: list[WorstPair] = field(default_factory=list)
    judged: int = 0
    poor: int = 0
    _hashes: tuple["array[int]", "array[int]", "array[int]"] = field(
        default_factory=lambda: (array("q"), array("q"), array("q"))
    )
    _lines: "array[int]" = field(default_factory=lambda: array("i"))

    def add(self, stretch: AlignedBlock) -> None:
        """Judges the pairs of a stretch as its alignment has them."""
        rows = [(row, partner) for row, partner in enumerate(stretch.partners()) if partner is not None]
        pairs = [self._places(stretch, row, partner) for row, partner in rows]
        if not pairs:
            return
        lengths = np.array([[len(source.text), len(target.text)] for source, target in pairs], float) + FEW_CHARACTERS
        ratios = np.log(lengths[:, 1] / lengths[:, 0])
        ratios -= np.median(ratios)
        for (source, target), ratio in zip(pairs, ratios.tolist(), strict=True):
            self._check(source, target, ratio)
            self._lines.append(source.line)
            for hashes, key in zip(self._hashes, (source.text, target.text, (source.text, target.text)), strict=True):
                hashes.append(hash(key))
        self._check_languages(pairs)
        self._rank(stretch, pairs, [row for row, _ in rows], ratios)

    def finish(self) -> None:
        """Tells what only the whole corpus shows: repeated pairs, and lines with several partners."""
        source, target, pair = (np.frombuffer(hashes, np.int64) for hashes in self._hashes)
        unique, first = np.unique(pair, return_index=True)
        self.findings["duplicate"].count = len(pair) - len(unique)
        self.findings["several-targets"].count = _repeated(source[first])
        self.findings["several-sources"].count = _repeated(target[first])

    def repeats(self) -> list[tuple[int, int]]:
        """The source lines of the first pairs that repeat an earlier one, each with that one's."""
        pair = np.frombuffer(self._hashes[2], np.int64)
        _, first, inverse = np.unique(pair, return_index=True, return_inverse=True)
        again = np.flatnonzero(first[inverse] != np.arange(len(pair)))[:EXAMPLES]
        return [(self._lines[row], self._lines[first[inverse[row]]]) for row in again.tolist()]

    def _places(self, stretch: AlignedBlock, row: int, partner: int) -> tuple[CorpusLine, CorpusLine]:
        return (
            CorpusLine(self.names[0], stretch.first_source + row + 1, stretch.source[row]),
            CorpusLine(self.names[1], stretch.first_target + partner + 1, stretch.target[partner]),
        )

    def _check(self, source: CorpusLine, target: CorpusLine, log_ratio: float) -> None:
        texts = source.text.strip(), target.text.strip()
        if not all(texts):
            sides = [name for name, text in zip(("source", "target"), texts, strict=True) if not text]
            self.findings.add("empty", (source, target), f"{' and '.join(sides)} empty")
            return
        if texts[0] == texts[1] and len(texts[0].split()) >= COPY_WORDS:
            self.findings.add("copy", (source,), f"line {target.line:,} of {target.file} is the same")
        if abs(log_ratio) > np.log(MOST_RATIO):
            self.findings.add("length-ratio", (source, target), _length_reason(log_ratio))
        n_words = max(len(text.split()) for text in texts)
        n_characters = max(map(len, texts))
        if n_words > MOST_WORDS or n_characters > MOST_CHARACTERS:
            self.findings.add("too-long", (source, target), f"{n_words:,} words, {n_characters:,} characters")

    def _check_languages(self, pairs: Sequence[tuple[CorpusLine, CorpusLine]]) -> None:
        sides = [[pair[side] for pair in pairs] for side in (0, 1)]
        texts = [[place.text for place in places] for places in sides]
        models = [LanguageModel.learn(lines) for lines in texts]
        for side, places in enumerate(sides):
            flagged = set[int]()
            for row, reason in unusual_scripts(texts[side]):
                flagged.add(row)
                self.findings.add("script", (places[row],), reason)
            for row, kind in _strange_lines(texts[side], models[side], models[1 - side]):
                if row not in flagged:
                    self.findings.add(kind, pairs[row], f"it is {places[row].file} that reads so")

    def _rank(
        self,
        stretch: AlignedBlock,
        pairs: Sequence[tuple[CorpusLine, CorpusLine]],
        rows: list[int],
        ratios: NDArray[np.float64],
    ) -> None:
        """Keeps the worst pairs; those of a stretch that fits nowhere are told as a whole."""
        if stretch.alignment is None:
            return
        fit = stretch.alignment.fit[rows]
        told = np.zeros(len(stretch.source), bool)
        for first, last in stretch.misfits():
            told[first:last] = True
        filled = np.array([bool(source.text.strip() and target.text.strip()) for source, target in pairs])
        single = ~told[rows] & filled
        self.judged += int(single.sum())
        self.poor += int((single & (fit < 0)).sum())
        candidates = np.flatnonzero(single & (fit < 0))
        for index in candidates[np.argsort(fit[candidates], kind="stable")][:WORST].tolist():
            source, target = pairs[index]
            reason = _reason(source, target, float(ratios[index]))
            self.worst.append(WorstPair(round(float(fit[index]), 2), source, target, reason))
        self.worst = heapq.nsmallest(WORST, self.worst)


def _strange_lines(lines: list[str], own: LanguageModel, other: LanguageModel) -> list[tuple[int, str]]:
    """Rows that read like the other side's language, or like neither, the clearest first."""
    odds, sizes, best = language_odds(lines, own, other)
    means = odds / np.maximum(sizes, 1)
    usual = float(np.median(means))
    if usual < LANGUAGES_DIFFER:  # one language on both sides, or too little text to tell
        return []
    centre = np.median(best)
    spread = 1.4826 * np.median(np.abs(best - centre)) + 1e-9  # of a normal distribution, from its median
    deviations = (best - centre) / spread * np.sqrt(sizes / max(1, np.median(sizes)))
    swapped = (odds < OTHER_SIDE_NATS) & (means < OTHER_SIDE_MEAN) & (sizes >= MIN_TRIGRAMS)
    foreign = (deviations < FOREIGN_DEVIATIONS) & (means < FOREIGN_SHARE * usual) & (sizes >= MIN_TRIGRAMS) & ~swapped
    kinds = np.where(swapped, "other-side", np.where(foreign, "foreign", ""))
    return [(row, str(kinds[row])) for row in np.argsort(odds).tolist() if kinds[row]]


def _reason(source: CorpusLine, target: CorpusLine, log_ratio: float) -> str:
    reasons = [_length_reason(log_ratio)] if abs(log_ratio) > np.log(UNUSUAL_LENGTH) else []
    numbers = [set(NUMBER.findall(place.text)) for place in (source, target)]
    if all(numbers) and not numbers[0] & numbers[1]:
        reasons.append("different numbers")
    return "; ".join([*reasons, "its words rarely meet in other pairs"])


def _length_reason(log_ratio: float) -> str:
    longer = "target" if log_ratio > 0 else "source"
    return f"{longer} {np.exp(abs(log_ratio)):.1f} times as long as usual"


def _repeated(hashes: NDArray[np.int64]) -> int:
    return int((np.unique(hashes, return_counts=True)[1] > 1).sum())
