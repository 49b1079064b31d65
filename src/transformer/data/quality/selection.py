"""Selection of the pairs of a corpus that are worth training on, with a reason for each of the others."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from transformer.data.quality.examination import display_names, language_of_file
from transformer.data.quality.findings import CorpusLine, Finding, Findings
from transformer.data.quality.pairs import PairChecks
from transformer.data.quality.shifts import MOST_LINES, AlignedBlock, align_in_blocks
from transformer.text.lines import read_lines

REASONS: Final[dict[str, str]] = {
    "no-partner": "a line without a partner, at a place where the sides shift",
    "empty": "an empty side",
    "invalid-utf8": "bytes that are not UTF-8",
    "too-long": "more than 200 words or 1,500 characters",
    "length-ratio": "one side is more than 3 times as long as usual",
    "copy": "both sides are the same, with at least 3 words",
    "script": "a script that is rare on its side",
    "other-side": "the language of the other side",
    "foreign": "neither of the two languages",
    "numbers": "numbers that the sides do not share",
    "placeholders": "placeholders that the sides do not share",
    "tags": "tags that the sides do not share",
    "addresses": "addresses that the sides do not share",
    "poor-fit": "words that rarely occur together in other pairs",
    "duplicate": "a pair that was there before",
}
"""Reasons to drop a pair, the first of which counts."""
MIN_FIT: Final = -4.0
"""Log odds, in nats, that two lines belong together, below which a pair fits poorly."""
REPLACEMENT: Final = "\ufffd"


@dataclass(frozen=True)
class JudgedPair:
    """A pair of a corpus.

    Attributes:
        line: Number of the source line, from 1.
        source: Source text.
        target: Target text; empty if the line has no partner.
        reason: Key of `REASONS`; empty if the pair is kept.
    """

    line: int
    source: str
    target: str
    reason: str = ""


@dataclass
class _LineFindings(Findings):
    """Records the kinds of findings of each line, of any number of lines.

    Attributes:
        kinds: Kinds of findings by the name of the file and the number of the line.
    """

    kinds: dict[tuple[str, int], set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Initializes the counts."""
        super().__init__()

    def add(self, kind: str, lines: Iterable[CorpusLine] = (), reason: str = "", count: int = 1) -> Finding:
        """Records a case."""
        lines = tuple(lines)
        for line in lines:
            self.kinds.setdefault((line.file, line.line), set()).add(kind)
        return super().add(kind, lines, reason, count)


def judge_pairs(
    source: Path,
    target: Path,
    *,
    allowed: Collection[str] = (),
    progress: Callable[[int], None] = lambda _: None,
    most_lines: int = MOST_LINES,
) -> Iterator[JudgedPair]:
    """Yields the pairs of two files in order, each with the reason to drop it, if there is one.

    Where lines are missing on one side, the following lines are paired with their partners, as `transformer check`
    finds them.

    Args:
        source: Source text file, plain or compressed.
        target: Target text file.
        allowed: Keys of `REASONS` for which no pair is dropped.
        progress: Callback that receives the number of lines judged since the last call.
        most_lines: Maximum number of pairs that are aligned together and held in memory.

    Raises:
        DataError: A file cannot be read, or is UTF-16.
    """
    names = display_names(source, target)
    n_source, n_target = (sum(1 for _ in _lines(path)) for path in (source, target))
    languages = language_of_file(source), language_of_file(target)
    seen = set[int]()
    for block in align_in_blocks(_lines(source), _lines(target), n_source, n_target, most_lines):
        findings = _LineFindings()
        PairChecks(names, findings, languages).add(block)
        poor = _poor_rows(block)
        for row, partner in enumerate(block.partners()):
            line, text = block.first_source + row + 1, block.source[row]
            if partner is None:
                reasons, translation = {"no-partner"}, ""
            else:
                translation = block.target[partner]
                places = (names[0], line), (names[1], block.first_target + partner + 1)
                reasons = set[str]().union(*(findings.kinds.get(place, ()) for place in places))
                reasons |= {"poor-fit"} if row in poor else set()
                reasons |= {"invalid-utf8"} if REPLACEMENT in text + translation else set()
            if not (reasons := reasons & REASONS.keys() - {*allowed} - {"duplicate"}) and "duplicate" not in allowed:
                key = hash((text, translation))
                reasons = {"duplicate"} if key in seen else set()
                seen.add(key)
            yield JudgedPair(line, text, translation, next((reason for reason in REASONS if reason in reasons), ""))
        progress(len(block.source))


def _poor_rows(block: AlignedBlock) -> set[int]:
    """Returns the source rows whose words rarely occur together with those of their partners elsewhere."""
    if block.alignment is None:
        return set()
    rows = {row for row, fit in enumerate(block.alignment.fit.tolist()) if fit < MIN_FIT}
    return rows.union(*(range(first, last) for first, last in block.poor_ranges()))


def _lines(path: Path) -> Iterator[str]:
    return read_lines(path, invalid="replace", overlong="cut")
