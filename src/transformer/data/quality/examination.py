"""The whole examination of two files, and its result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from transformer.data.quality.characters import find_suspicious_characters
from transformer.data.quality.findings import LEVELS, CorpusLine, Example, Finding, Findings
from transformer.data.quality.overlap import TestLines
from transformer.data.quality.pairs import PairChecks, WorstPair
from transformer.data.quality.shifts import MOST_LINES, Shift, align_in_blocks
from transformer.errors import DataError
from transformer.text.lines import LineCounts, read_lines

REPLACEMENT, POOR_SHARE, MIN_UNRELATED = "\ufffd", 0.05, 500
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Examination:
    """What was found.

    Attributes:
        names: of the files, source first.
        lines: of each.
        findings: the most important first.
        shifts: in the order of the files.
        worst: pairs that fit badly, the worst first.
        tests: each test file's overlap with the training text.
        judged: pairs whose fit was judged.
        poor: how many of those fit no better than chance.
    """

    names: tuple[str, str]
    lines: tuple[int, int]
    findings: list[Finding]
    shifts: list[Shift]
    worst: list[WorstPair]
    tests: list[dict[str, Any]]
    judged: int
    poor: int

    @property
    def is_fine(self) -> bool:
        """No problem and no warning, though there may be notes."""
        return all(finding.known.level == "note" for finding in self.findings)

    def count(self, level: str) -> int:
        """How many kinds of findings are of a level."""
        return sum(finding.known.level == level for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The examination as JSON values."""
        files = [
            {"side": side, "file": name, "lines": lines}
            for side, name, lines in zip(("source", "target"), self.names, self.lines, strict=True)
        ]
        worst = [
            {"fit": pair.fit, "reason": pair.reason, "source": vars(pair.source), "target": vars(pair.target)}
            for pair in self.worst
        ]
        return {
            "fine": self.is_fine,
            "files": files,
            "counts": {level: self.count(level) for level in LEVELS},
            "findings": [finding.to_dict() for finding in self.findings],
            "shifts": [shift.to_dict() for shift in self.shifts],
            "fit": {"judged": self.judged, "poor": self.poor},
            "worst_pairs": worst,
            "tests": self.tests,
        }


def examine(
    source: Path,
    target: Path,
    tests: Sequence[Path] = (),
    progress: Progress = lambda lines: None,
    most_lines: int = MOST_LINES,
) -> Examination:
    """Examines two files: each line alone, then pair by pair.

    Args:
        source: text file, plain or .gz.
        target: its translation.
        tests: files of test lines, of either language.
        progress: called with the number of lines done since the last call, four times the lines of a file in all.
        most_lines: pairs that are judged together, and held in memory.

    Raises:
        DataError: a file cannot be read, is UTF-16, or is empty.
    """
    findings, held_out = Findings(), TestLines.read(tests)
    names = display_names(source, target)
    lines = (
        _read_alone(source, names[0], findings, held_out, progress),
        _read_alone(target, names[1], findings, held_out, progress),
    )
    if not all(lines):
        raise DataError(f"{names[lines.index(0)]} is empty; give text files with one sentence a line")
    if lines[0] != lines[1]:
        reason = f"{names[0]} has {lines[0]:,} lines, {names[1]} has {lines[1]:,}"
        findings.add("unequal", reason=reason, count=abs(lines[0] - lines[1]))
    checks, shifts = PairChecks(names, findings), list[Shift]()
    sources, targets = (read_lines(path, invalid="replace") for path in (source, target))
    for stretch in align_in_blocks(sources, targets, lines[0], lines[1], most_lines):
        checks.add(stretch)
        for shift in stretch.shifts():
            shifts.append(shift)
            orphan = stretch.orphan(shift)
            places = (CorpusLine(names[shift.size > 0], *orphan),) if orphan else ()
            findings.add("shift", places, shift.sentence(names[0], names[1]))
        if stretch.alignment is None:
            kind = "unrelated" if len(stretch.source) >= MIN_UNRELATED else "not-judged"
            findings.add(kind, count=len(stretch.source))
        for first, last in stretch.misfits():
            rows = stretch.first_source + first + 1, stretch.first_source + last
            findings.add("stretch", reason=f"lines {rows[0]:,} to {rows[1]:,} of {names[0]}", count=last - first)
        progress(2 * len(stretch.source))
    left_over = lines[1] - lines[0] - sum(shift.size for shift in shifts)
    if lines[0] != lines[1] and left_over and checks.judged:
        findings.add("unequal", reason=_at_the_end(names[left_over > 0], abs(left_over)), count=0)
    _finish(checks, findings, source)
    return Examination(
        names, lines, list(findings), shifts, checks.worst, held_out.summary(), checks.judged, checks.poor
    )


def display_names(source: Path, target: Path) -> tuple[str, str]:
    """What the two files are called in the report: their names, or their paths where these are equal."""
    return (str(source), str(target)) if source.name == target.name else (source.name, target.name)


def _read_alone(path: Path, name: str, findings: Findings, tests: TestLines, progress: Progress) -> int:
    """Looks at every line by itself; returns how many there are."""
    counts = LineCounts()
    replaced = 0
    for line in read_lines(path, counts, "replace"):
        place = CorpusLine(name, counts.lines, line)
        if counts.replaced > replaced:
            replaced = counts.replaced
            _note_replaced(place, findings)
        else:
            for kind, reason in find_suspicious_characters(line):
                findings.add(kind, (place,), reason)
        tests.look_up(place, findings)
        if counts.lines % 10_000 == 0:
            progress(10_000)
    if counts.carriage_returns:
        findings.add("carriage-return", reason=f"{counts.carriage_returns:,} in {name}", count=counts.carriage_returns)
    return counts.lines


def _at_the_end(name: str, n_lines: int) -> str:
    lines = "line" if n_lines == 1 else f"{n_lines:,} lines"
    return f"the last {lines} of {name} may be what is too many: no shift before that accounts for it"


def _note_replaced(place: CorpusLine, findings: Findings) -> None:
    """The reader replaced bytes in a line, or removed a byte order mark from it."""
    position = place.text.find(REPLACEMENT)
    if position < 0:
        findings.add("byte-order-mark", (place,), "byte 1")
    else:
        findings.add("invalid-utf8", (place,), f"byte {len(place.text[:position].encode()) + 1}")


def _finish(checks: PairChecks, findings: Findings, source: Path) -> None:
    """Adds what only the whole corpus shows."""
    checks.finish()
    if checks.poor > POOR_SHARE * checks.judged:
        findings.add("poor-fit", reason=f"{checks.poor / checks.judged:.1%} of all pairs", count=checks.poor)
    repeats = dict(checks.repeats())
    texts = enumerate(islice(read_lines(source, invalid="replace"), max(repeats, default=0)), start=1)
    findings["duplicate"].examples += [
        Example((CorpusLine(checks.names[0], line, text),), f"the same pair as line {repeats[line]:,}")
        for line, text in texts
        if line in repeats
    ]
