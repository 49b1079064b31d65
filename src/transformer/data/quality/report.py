"""The examination as a short text report, the most important findings first, with advice."""

from collections.abc import Iterator

from transformer.data.quality.examination import Examination
from transformer.data.quality.findings import LEVELS, CorpusLine, Example, FileDetail, Finding
from transformer.data.quality.overlap import TestOverlap
from transformer.errors import printable

WIDTH, SHOWN_EXAMPLES, SHOWN_WORST, SHORT_REASON = 110, 3, 10, 50
INDENT = " " * 18


def text_report(examination: Examination) -> str:
    """Returns the report for a terminal; control characters of the corpus are escaped."""
    return "\n".join(_lines(examination)) + "\n"


def headline(examination: Examination) -> str:
    """Returns the number of findings of each level: `1 problem, 2 warnings, no notes`."""
    counts = [(level, examination.count(level)) for level in LEVELS]
    return ", ".join(f"{count or 'no'} {level}{'' if count == 1 else 's'}" for level, count in counts)


def fit_line(examination: Examination) -> str:
    """Returns a sentence on how well the two sides fit."""
    if not examination.judged:
        return "how well the two sides fit cannot be estimated"
    good = examination.judged - examination.poor
    return (
        f"{good:,} of {examination.judged:,} pairs ({good / examination.judged:.1%}) fit each other better than chance"
    )


def overlap_line(test: TestOverlap) -> str:
    """Returns a sentence on the overlap of a test file with the training text."""
    return (
        f"{test['loose']:,} of {test['lines']:,} lines of {test['file']} are in the training text, "
        f"{test['exact']:,} of them word for word"
    )


def detail_line(detail: FileDetail) -> str:
    """Returns a description of how many lines of a file a finding concerns."""
    composed = detail.get("composed")
    and_composed = f", and {composed:,} lines with composed characters" if composed else ""
    return f"{detail['file']}: {detail['lines']:,}{and_composed}"


def _lines(examination: Examination) -> Iterator[str]:
    sides = zip(examination.names, examination.lines, strict=True)
    yield " and ".join(f"{printable(name)} ({lines:,} line{'' if lines == 1 else 's'})" for name, lines in sides)
    yield f"{headline(examination)}; {fit_line(examination)}"
    for test in examination.tests:
        yield printable(overlap_line(test))
    for finding in examination.findings:
        yield ""
        yield from _finding_lines(finding)
    if examination.worst:
        yield ""
        yield "worst pairs (fit: log odds that the two lines belong together; good pairs are well above 0)"
        for pair in examination.worst[:SHOWN_WORST]:
            yield f"{pair.fit:8.1f}  {pair.reason}"
            yield from (_format_line(line, " " * 10) for line in (pair.source, pair.target))
    if examination.is_fine:
        yield ""
        yield "fine: nothing needs to be done"


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.kind_info.level:<8}{finding.count:>8,}  {finding.kind_info.title}"
    yield f"{INDENT}-> {finding.kind_info.advice}"
    for detail in finding.details:
        yield f"{INDENT}{printable(detail_line(detail))}"
    for example in finding.examples[:SHOWN_EXAMPLES]:
        yield from _example_lines(example)
    hidden = finding.count - SHOWN_EXAMPLES
    if hidden > 0 and len(finding.examples) > SHOWN_EXAMPLES:
        yield f"{INDENT}... (more with --format json or html)"


def _example_lines(example: Example) -> Iterator[str]:
    reason = printable(example.reason)
    if reason and (len(reason) > SHORT_REASON or not example.lines):
        yield f"{INDENT}{reason}"
        reason = ""
    for line in example.lines:
        yield _format_line(line, INDENT) + (f"   ({reason})" if reason else "")
        reason = ""


def _format_line(line: CorpusLine, indent: str) -> str:
    text = printable(line.text)
    width = max(30, WIDTH - len(indent) - len(line.file) - 10)
    return f"{indent}{printable(line.file)}:{line.line}: {text if len(text) <= width else text[: width - 1] + '…'}"
