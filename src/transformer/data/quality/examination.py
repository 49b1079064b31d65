"""The examination of two parallel files, and its result."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from transformer.data.quality.characters import find_suspicious_characters
from transformer.data.quality.findings import LEVELS, CorpusLine, Example, FileDetail, Finding, Findings
from transformer.data.quality.kept_spans import CaseCounts, mixed_word
from transformer.data.quality.overlap import TestLines, TestOverlap
from transformer.data.quality.pairs import PairChecks, WorstPair
from transformer.data.quality.shifts import MOST_LINES, AlignedBlock, Shift, align_in_blocks
from transformer.data.quality.traits import COMPOSED, line_traits
from transformer.errors import DataError, counted
from transformer.text.languages import detect_language, language_of_files
from transformer.text.lines import LineCounts, read_lines

EXAMINED_TRAITS: Final = frozenset({"decomposed", "special-space", "soft-hyphen", "outer-space"})
"""Traits that are findings; invisible characters are found with other control characters."""
LANGUAGE_LINES: Final = 2000
"""Number of lines by which the language of a file is detected."""
REPLACEMENT, POOR_SHARE, MIN_UNRELATED = "\ufffd", 0.05, 500
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Examination:
    """The result of an examination.

    Attributes:
        names: Names of the files, source first.
        lines: Number of lines of each file.
        findings: Findings, the most important first.
        shifts: Shifts between the files, in order.
        worst: Pairs with the worst fit, the worst first.
        tests: Overlap of each test file with the training text.
        judged: Number of pairs whose fit was estimated.
        poor: Number of those pairs that fit no better than chance.
    """

    names: tuple[str, str]
    lines: tuple[int, int]
    findings: list[Finding]
    shifts: list[Shift]
    worst: list[WorstPair]
    tests: list[TestOverlap]
    judged: int
    poor: int

    @property
    def is_fine(self) -> bool:
        """Whether there are neither problems nor warnings; notes are allowed."""
        return all(finding.kind_info.level == "note" for finding in self.findings)

    def count(self, level: str) -> int:
        """Returns the number of kinds of findings of a level."""
        return sum(finding.kind_info.level == level for finding in self.findings)

    def to_dict(self) -> dict[str, object]:
        """Returns the examination as JSON values."""
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
    """Examines two files: first each line alone, then the pairs.

    Args:
        source: Source text file, plain or .gz.
        target: Target text file.
        tests: Files of test lines, in either language.
        progress: Callback that receives the number of lines processed since the last call; their sum is four times
            the number of lines of a file.
        most_lines: Maximum number of pairs that are aligned together and held in memory.

    Raises:
        DataError: a file cannot be read, is UTF-16, or is empty.
    """
    findings, held_out = Findings(), TestLines.read(tests)
    names = display_names(source, target)
    cases = CaseCounts(), CaseCounts()
    lines = (
        _examine_lines(source, names[0], findings, held_out, cases[0], progress),
        _examine_lines(target, names[1], findings, held_out, cases[1], progress),
    )
    if cases[0].only() != cases[1].only():
        for name, case in zip(names, cases, strict=True):
            if only := case.only():
                n_lines = case.counts[only]
                findings.add("one-case", reason=f"{n_lines:,} of {name} in {only}", count=n_lines)
    if not all(lines):
        raise DataError(f"{names[lines.index(0)]} is empty; give text files with one sentence a line")
    if lines[0] != lines[1]:
        reason = f"{names[0]} has {counted(lines[0], 'line')}, {names[1]} has {lines[1]:,}"
        findings.add("unequal", reason=reason, count=abs(lines[0] - lines[1]))
    languages = language_of_file(source), language_of_file(target)
    checks, shifts = PairChecks(names, findings, languages), list[Shift]()
    sources, targets = (read_lines(path, invalid="replace", overlong="cut") for path in (source, target))
    for block in align_in_blocks(sources, targets, lines[0], lines[1], most_lines):
        checks.add(block)
        shifts.extend(block.shifts())
        _add_alignment(block, names, findings)
        progress(2 * len(block.source))
    unexplained = lines[1] - lines[0] - sum(shift.size for shift in shifts)
    if lines[0] != lines[1] and unexplained and checks.judged:
        findings.add("unequal", reason=_surplus_at_end(names[unexplained > 0], abs(unexplained)), count=0)
    _finish(checks, findings, source)
    return Examination(
        names, lines, list(findings), shifts, checks.worst, held_out.summary(), checks.judged, checks.poor
    )


def _add_alignment(block: AlignedBlock, names: tuple[str, str], findings: Findings) -> None:
    """Adds the findings of a block that concern several lines: shifts, unrelated texts and poor stretches."""
    for shift in block.shifts():
        first_unpaired = block.first_unpaired(shift)
        corpus_lines = (CorpusLine(names[shift.size > 0], *first_unpaired),) if first_unpaired else ()
        findings.add("shift", corpus_lines, shift.describe(names[0], names[1]))
    if block.alignment is None:
        kind = "unrelated" if len(block.source) >= MIN_UNRELATED else "not-judged"
        findings.add(kind, count=len(block.source))
    for first, last in block.poor_ranges():
        rows = block.first_source + first + 1, block.first_source + last
        findings.add("stretch", reason=f"lines {rows[0]:,} to {rows[1]:,} of {names[0]}", count=last - first)


def language_of_file(path: Path) -> str:
    """Returns the language of a file by its name or by its text; empty if neither tells."""
    by_name = language_of_files([str(path)])
    lines = islice(read_lines(path, invalid="replace", overlong="cut"), LANGUAGE_LINES)
    return by_name or detect_language(list(lines)) or ""


def display_names(source: Path, target: Path) -> tuple[str, str]:
    """Returns the names of the two files in the report: their file names, or their paths if the names are equal."""
    return (str(source), str(target)) if source.name == target.name else (source.name, target.name)


def _examine_lines(
    path: Path, name: str, findings: Findings, tests: TestLines, case: CaseCounts, progress: Progress
) -> int:
    """Examines every line alone and returns the number of lines."""
    counts, traits = LineCounts(), Counter[str]()
    replaced = 0
    for line in read_lines(path, counts, "replace", overlong="cut"):
        corpus_line = CorpusLine(name, counts.lines, line)
        if counts.replaced > replaced:
            replaced = counts.replaced
            _add_decoding_problem(corpus_line, findings)
        else:
            for kind, reason in find_suspicious_characters(line):
                findings.add(kind, (corpus_line,), reason)
        for trait, reason in line_traits(line):
            traits[trait] += 1
            if trait in EXAMINED_TRAITS:
                findings.add(trait, (corpus_line,), reason)
        if word := mixed_word(line):
            findings.add("mixed-script", (corpus_line,), word)
        if "\t" in line.strip():
            findings.add("tab", (corpus_line,))
        case.add(line)
        tests.look_up(corpus_line, findings)
        if counts.lines % 10_000 == 0:
            progress(10_000)
    for trait in EXAMINED_TRAITS & traits.keys():
        detail: FileDetail = {"file": name, "lines": traits[trait]}
        if trait == "decomposed":
            detail["composed"] = traits[COMPOSED]
        findings[trait].details.append(detail)
    if counts.carriage_returns:
        findings.add("carriage-return", reason=f"{counts.carriage_returns:,} in {name}", count=counts.carriage_returns)
    return counts.lines


def _surplus_at_end(name: str, n_lines: int) -> str:
    lines = "line" if n_lines == 1 else f"{n_lines:,} lines"
    return f"the last {lines} of {name} may be superfluous: no earlier shift accounts for it"


def _add_decoding_problem(corpus_line: CorpusLine, findings: Findings) -> None:
    """Adds a finding for a line in which the reader replaced bytes, or from which it removed a byte order mark."""
    position = corpus_line.text.find(REPLACEMENT)
    if position < 0:
        findings.add("byte-order-mark", (corpus_line,), "byte 1")
    else:
        findings.add("invalid-utf8", (corpus_line,), f"byte {len(corpus_line.text[:position].encode()) + 1}")


def _finish(checks: PairChecks, findings: Findings, source: Path) -> None:
    """Adds the findings that need the whole corpus."""
    checks.finish()
    if checks.poor > POOR_SHARE * checks.judged:
        findings.add("poor-fit", reason=f"{checks.poor / checks.judged:.1%} of all pairs", count=checks.poor)
    repeats = dict(checks.repeats())
    texts = enumerate(islice(read_lines(source, invalid="replace", overlong="cut"), max(repeats, default=0)), start=1)
    findings["duplicate"].examples += [
        Example((CorpusLine(checks.names[0], line, text),), f"the same pair as line {repeats[line]:,}")
        for line, text in texts
        if line in repeats
    ]
