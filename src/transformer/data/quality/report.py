"""An examination as text: short, the most important first, with what to do."""

from collections.abc import Iterator

from transformer.data.quality.examination import Examination
from transformer.data.quality.findings import LEVELS, CorpusLine, Example, Finding
from transformer.errors import printable

WIDTH, SHOWN_EXAMPLES, SHOWN_WORST, SHORT_REASON = 110, 3, 10, 50
INDENT = " " * 18


def text_report(examination: Examination) -> str:
    """The report for a terminal; no character of the corpus can steer it."""
    return "\n".join(_lines(examination)) + "\n"


def headline(examination: Examination) -> str:
    """How many findings of each level: `1 problem, 2 warnings, no notes`."""
    counts = [(level, examination.count(level)) for level in LEVELS]
    return ", ".join(f"{count or 'no'} {level}{'' if count == 1 else 's'}" for level, count in counts)


def fit_line(examination: Examination) -> str:
    """How well the two sides fit, in a sentence."""
    if not examination.judged:
        return "how well the two sides fit cannot be told"
    good = examination.judged - examination.poor
    return (
        f"{good:,} of {examination.judged:,} pairs ({good / examination.judged:.1%}) fit each other better than chance"
    )


def overlap_line(test: "dict[str, object]") -> str:
    """What a test file shares with the training text."""
    return (
        f"{test['loose']:,} of {test['lines']:,} lines of {test['file']} are in the training text, "
        f"{test['exact']:,} of them word for word"
    )


def _lines(examination: Examination) -> Iterator[str]:
    sides = zip(examination.names, examination.lines, strict=True)
    yield " and ".join(f"{printable(name)} ({lines:,} lines)" for name, lines in sides)
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
            yield from (_place_line(place, " " * 10) for place in (pair.source, pair.target))
    if examination.is_fine:
        yield ""
        yield "fine: nothing needs to be done"


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.known.level:<8}{finding.count:>8,}  {finding.known.title}"
    yield f"{INDENT}-> {finding.known.advice}"
    for example in finding.examples[:SHOWN_EXAMPLES]:
        yield from _example_lines(example)
    hidden = finding.count - SHOWN_EXAMPLES
    if hidden > 0 and len(finding.examples) > SHOWN_EXAMPLES:
        yield f"{INDENT}... (more with --format json or html)"


def _example_lines(example: Example) -> Iterator[str]:
    reason = printable(example.reason)
    if reason and (len(reason) > SHORT_REASON or not example.places):
        yield f"{INDENT}{reason}"
        reason = ""
    for place in example.places:
        yield _place_line(place, INDENT) + (f"   ({reason})" if reason else "")
        reason = ""


def _place_line(place: CorpusLine, indent: str) -> str:
    text = printable(place.text)
    room = max(30, WIDTH - len(indent) - len(place.file) - 10)
    return f"{indent}{printable(place.file)}:{place.line}: {text if len(text) <= room else text[: room - 1] + '…'}"
