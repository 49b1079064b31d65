"""The kinds of findings, with severity and advice, and the collection of findings."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NotRequired, TypedDict

Level = Literal["problem", "warning", "note"]
LEVELS: tuple[Level, ...] = ("problem", "warning", "note")
EXAMPLES = 20


@dataclass(frozen=True)
class FindingKind:
    """A kind of finding.

    Attributes:
        level: Severity: a "problem" stops or spoils a training run, a "warning" costs quality, a "note" is information.
        title: Description of the cases that are counted.
        advice: Recommended action.
    """

    level: Level
    title: str
    advice: str


# In the order of the report: the most important first.
KINDS = {
    "unequal": FindingKind(
        "problem",
        "more lines in one file than in the other",
        "line n of one must be the translation of line n of the other; correct the shifts listed below",
    ),
    "shift": FindingKind(
        "problem",
        "places where the two sides shift against each other",
        "look at these lines, restore the missing lines on one side or delete them from the other, and check again",
    ),
    "unrelated": FindingKind(
        "problem",
        "pairs, and the two files do not look like translations of each other",
        "check that both hold the same text in the same order",
    ),
    "stretch": FindingKind(
        "problem",
        "lines in stretches where the two sides do not fit",
        "look at these lines: another text, another order, or a shift that is too short or too far to detect",
    ),
    "invalid-utf8": FindingKind(
        "problem",
        "lines that are not UTF-8",
        "convert the file (iconv -f WINDOWS-1252 -t UTF-8), or train with data.invalid_utf8=replace",
    ),
    "byte-order-mark": FindingKind(
        "problem", "byte order marks at the start of a file", "save the file as UTF-8 without a byte order mark"
    ),
    "nul": FindingKind(
        "problem", "lines with NUL characters", "the file may be UTF-16 or damaged; convert or repair it"
    ),
    "test-overlap": FindingKind(
        "warning",
        "lines of the training text that are test lines",
        "remove these pairs from the training text, or the test score flatters",
    ),
    "test-overlap-loose": FindingKind(
        "warning",
        "lines of the training text that equal test lines except for case, spaces or punctuation",
        "remove these pairs from the training text, or the test score flatters",
    ),
    "script": FindingKind(
        "warning",
        "lines in a script that is unusual for their side",
        "remove the pairs, or move the lines to their side",
    ),
    "other-side": FindingKind(
        "warning",
        "lines that read like the language of the other side",
        "untranslated or swapped: remove these pairs, or swap them back",
    ),
    "copy": FindingKind(
        "warning",
        "pairs of three words or more with the same text on both sides",
        "remove what is untranslated; a model that sees many copies learns to copy",
    ),
    "empty": FindingKind("warning", "pairs with an empty side", "nothing needed: training drops and counts them"),
    "length-ratio": FindingKind(
        "warning",
        "pairs with one side far longer than the other",
        "one side is cut or holds more; remove or correct them (training drops the worst and counts them)",
    ),
    "too-long": FindingKind(
        "warning",
        "pairs longer than 200 words or 1,500 characters",
        "often several sentences or a lost line end; split them (training drops and counts pairs that are too long)",
    ),
    "mojibake": FindingKind(
        "warning", "lines that look wrongly decoded, such as Ã¼ for ü", "convert again, from the encoding they are in"
    ),
    "replacement": FindingKind(
        "warning", "lines with U+FFFD, where a character was lost", "take them from the original again"
    ),
    "numbers": FindingKind(
        "warning",
        "pairs with different numbers",
        "correct or remove them: a model learns to change numbers",
    ),
    "placeholders": FindingKind(
        "warning",
        "pairs with different placeholders, such as %s or {name}",
        "correct or remove them: a model learns to lose placeholders",
    ),
    "tags": FindingKind(
        "warning", "pairs with different tags", "correct or remove them: a model learns to lose or to invent tags"
    ),
    "addresses": FindingKind(
        "warning",
        "pairs with different web or mail addresses",
        "correct them, if the target does not mean another page",
    ),
    "mixed-script": FindingKind(
        "warning",
        "lines with a word of two scripts, such as a Cyrillic letter in a Latin word",
        "replace the letter: the word looks right and is another one to a model",
    ),
    "one-case": FindingKind(
        "warning",
        "lines of a side in lower case or in capitals throughout, unlike the other side",
        "use the original text: a model learns to write like this",
    ),
    "html": FindingKind(
        "note",
        "lines with HTML tags or entities",
        "nothing needed for tags, which may stay in both sides; unescape entities such as &amp; in plain text",
    ),
    "tab": FindingKind(
        "note",
        "lines with a tab within",
        "if these are columns, give the file as .tsv (--pairs); else replace the tabs",
    ),
    "final-mark": FindingKind(
        "note",
        "pairs with different punctuation at the end",
        "nothing needed where the languages differ; a lost end of a sentence is worth correcting",
    ),
    "line-break": FindingKind(
        "warning",
        "lines with a character that some programs take for a line end",
        "replace it by a space: only \\n ends a line here, but other programs may split the line",
    ),
    "poor-fit": FindingKind(
        "warning",
        "pairs that fit like lines paired at random",
        "read the worst pairs; remove those that are not translations",
    ),
    "list-mark": FindingKind(
        "warning",
        "pairs with a list mark (such as - or •) on one side only",
        "add the mark to the other side, or remove it: a model learns to leave it out or to make it up",
    ),
    "decomposed": FindingKind(
        "note",
        "lines with decomposed characters (not Unicode NFC)",
        "training composes characters unless tokenizer.normalize says otherwise; for other programs, convert to NFC",
    ),
    "special-space": FindingKind(
        "note",
        "lines with no-break or other special spaces",
        "training reads them as spaces in the source; in the target, models learn to write them",
    ),
    "soft-hyphen": FindingKind(
        "note",
        "lines with soft hyphens",
        "training removes them unless tokenizer.normalize says otherwise; other programs may not",
    ),
    "outer-space": FindingKind(
        "note",
        "lines with spaces at an end",
        "training ignores them in the source; remove them from the target, or models learn to write them",
    ),
    "foreign": FindingKind(
        "note",
        "lines that may be in neither side's language",
        "remove these pairs if they are another language or noise",
    ),
    "control-character": FindingKind("note", "lines with invisible control characters", "remove the characters"),
    "control-token": FindingKind(
        "note", "lines with text like a control token", "nothing needed: it stays text here; other tools may mistake it"
    ),
    "duplicate": FindingKind(
        "note", "pairs that repeat an earlier one", "nothing needed: training keeps the first of each"
    ),
    "several-targets": FindingKind(
        "note", "sources with more than one translation", "nothing needed, if translations are meant to vary"
    ),
    "several-sources": FindingKind(
        "note", "targets that translate more than one source", "nothing needed, if they are not stopgaps or boilerplate"
    ),
    "carriage-return": FindingKind(
        "note", "lines that end in \\r\\n", "nothing needed: the \\r is not part of the line"
    ),
    "not-judged": FindingKind(
        "note",
        "pairs, too few or too irregular to estimate how well the two sides fit",
        "read some of them yourself: shifts and wrong pairs cannot be detected",
    ),
}


@dataclass(frozen=True)
class CorpusLine:
    """A line of a file: the name of the file, the line number from 1, and the text."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Example:
    """An example of a finding: the lines concerned, source before target, and the reason."""

    lines: tuple[CorpusLine, ...]
    reason: str = ""


class FileDetail(TypedDict):
    """The number of lines of a file that a finding concerns, and of those that have composed characters."""

    file: str
    lines: int
    composed: NotRequired[int]


@dataclass
class Finding:
    """The number of cases of one kind, and the first examples; `details` are the numbers of each file, if known."""

    kind: str
    count: int = 0
    examples: list[Example] = field(default_factory=list)
    details: list[FileDetail] = field(default_factory=list)

    @property
    def kind_info(self) -> FindingKind:
        """Level, title and advice of the kind."""
        return KINDS[self.kind]

    def to_dict(self) -> dict[str, object]:
        """Returns the finding as JSON values."""
        examples = [
            {"reason": example.reason, "lines": [vars(line) for line in example.lines]} for example in self.examples
        ]
        header = {
            "kind": self.kind,
            "level": self.kind_info.level,
            "title": self.kind_info.title,
            "advice": self.kind_info.advice,
        }
        details = {"details": self.details} if self.details else {}
        return {**header, "count": self.count, **details, "examples": examples}


class Findings:
    """Collects findings by kind."""

    def __init__(self) -> None:
        self._by_kind = {kind: Finding(kind) for kind in KINDS}

    def add(self, kind: str, lines: Iterable[CorpusLine] = (), reason: str = "", count: int = 1) -> Finding:
        """Counts a case, and keeps it as an example if it is among the first."""
        finding = self._by_kind[kind]
        finding.count += count
        lines = tuple(lines)
        if len(finding.examples) < EXAMPLES and (lines or reason):
            finding.examples.append(Example(lines, reason))
        return finding

    def __getitem__(self, kind: str) -> Finding:
        return self._by_kind[kind]

    def __iter__(self) -> Iterator[Finding]:
        """Yields the findings with at least one case, the most important first."""
        return (finding for finding in self._by_kind.values() if finding.count)
