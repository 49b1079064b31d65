"""What the doctor can find, how bad it is, and what to do about it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["problem", "warning", "note"]
LEVELS: tuple[Level, ...] = ("problem", "warning", "note")
EXAMPLES = 20


@dataclass(frozen=True)
class Kind:
    """One thing that can be found.

    Attributes:
        level: "problem" stops or spoils a training run, "warning" costs quality, "note" is good to know.
        title: what the count counts.
        advice: what to do.
    """

    level: Level
    title: str
    advice: str


# The most important first: this is the order of the report.
KINDS = {
    "unequal": Kind(
        "problem",
        "lines more in one file than in the other",
        "line n of one must be the translation of line n of the other; mend the places named as shifted",
    ),
    "shift": Kind(
        "problem",
        "places where the two sides shift against each other",
        "look at the lines named, restore what one side lost or delete it from the other, and check again",
    ),
    "unrelated": Kind(
        "problem",
        "pairs, and the two files do not look like translations of each other",
        "check that both hold the same text in the same order",
    ),
    "stretch": Kind(
        "problem",
        "lines in stretches where the two sides do not fit",
        "look at these lines: another text, another order, or a shift too short or too far to be told",
    ),
    "invalid-utf8": Kind(
        "problem",
        "lines that are not UTF-8",
        "convert the file (iconv -f WINDOWS-1252 -t UTF-8), or train with data.invalid_utf8=replace",
    ),
    "byte-order-mark": Kind(
        "problem", "byte order marks at the start of a file", "save the file as UTF-8 without a byte order mark"
    ),
    "nul": Kind("problem", "lines with NUL characters", "the file may be UTF-16 or damaged; convert or repair it"),
    "test-overlap": Kind(
        "warning",
        "lines of the training text that are test lines",
        "remove these pairs from the training text, or the test score flatters",
    ),
    "test-overlap-loose": Kind(
        "warning",
        "lines of the training text that are test lines but for case, spaces or punctuation",
        "remove these pairs from the training text, or the test score flatters",
    ),
    "script": Kind(
        "warning",
        "lines in a script that is unusual for their side",
        "remove the pairs, or move the lines to their side",
    ),
    "other-side": Kind(
        "warning",
        "lines that read like the language of the other side",
        "untranslated or swapped: remove these pairs, or swap them back",
    ),
    "copy": Kind(
        "warning",
        "pairs of three words or more with the same text on both sides",
        "remove what is untranslated; a model that sees many copies learns to copy",
    ),
    "empty": Kind("warning", "pairs with an empty side", "nothing needed: training drops and counts them"),
    "length-ratio": Kind(
        "warning",
        "pairs with one side far longer than the other",
        "one side is cut or holds more; remove or mend them (training drops the worst and counts them)",
    ),
    "too-long": Kind(
        "warning",
        "pairs longer than 200 words or 1,500 characters",
        "often many sentences or a lost line end; split them (training drops what exceeds the model and counts it)",
    ),
    "mojibake": Kind(
        "warning", "lines that look wrongly decoded, such as Ã¼ for ü", "convert again, from the encoding they are in"
    ),
    "replacement": Kind(
        "warning", "lines with U+FFFD, where a character was lost", "take them from the original again"
    ),
    "html": Kind("warning", "lines with HTML tags or entities", "strip the tags and unescape entities such as &amp;"),
    "line-break": Kind(
        "warning",
        "lines with a character that some programs take for a line end",
        "replace it by a space: only \\n ends a line here, but other tools may shift the corpus",
    ),
    "poor-fit": Kind(
        "warning", "pairs that fit like lines paired at random", "read the worst pairs; remove what is no translation"
    ),
    "foreign": Kind(
        "note",
        "lines that may be in neither side's language",
        "remove these pairs if they are another language or noise",
    ),
    "control-character": Kind("note", "lines with invisible control characters", "remove the characters"),
    "control-token": Kind(
        "note", "lines with text like a control token", "nothing needed: it stays text here; other tools may mistake it"
    ),
    "duplicate": Kind("note", "pairs that repeat an earlier one", "nothing needed: training keeps the first of each"),
    "several-targets": Kind(
        "note", "sources with more than one translation", "nothing needed, if translations are meant to vary"
    ),
    "several-sources": Kind(
        "note", "targets that translate more than one source", "nothing needed, if they are not stopgaps or boilerplate"
    ),
    "carriage-return": Kind("note", "lines that end in \\r\\n", "nothing needed: the \\r is not part of the line"),
    "not-judged": Kind(
        "note",
        "pairs, too few or too irregular to tell how well the two sides fit",
        "read some of them yourself: shifts and wrong pairs cannot be told",
    ),
}


@dataclass(frozen=True)
class CorpusLine:
    """A line of a file: its name as given, the line's number from 1, its text."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Example:
    """One case: the lines concerned, source before target, and what is to be said of them."""

    places: tuple[CorpusLine, ...]
    reason: str = ""


@dataclass
class Finding:
    """How often one kind was found, and the first cases of it."""

    kind: str
    count: int = 0
    examples: list[Example] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)

    @property
    def known(self) -> Kind:
        """Level, title and advice."""
        return KINDS[self.kind]

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON values."""
        examples = [
            {"reason": example.reason, "lines": [vars(place) for place in example.places]} for example in self.examples
        ]
        about = {"kind": self.kind, "level": self.known.level, "title": self.known.title, "advice": self.known.advice}
        details = {"details": self.details} if self.details else {}
        return {**about, "count": self.count, **details, "examples": examples}


class Findings:
    """Collects findings by kind."""

    def __init__(self) -> None:
        self._by_kind = {kind: Finding(kind) for kind in KINDS}

    def add(self, kind: str, places: Iterable[CorpusLine] = (), reason: str = "", count: int = 1) -> Finding:
        """Counts a case, and keeps it where it is among the first."""
        finding = self._by_kind[kind]
        finding.count += count
        places = tuple(places)
        if len(finding.examples) < EXAMPLES and (places or reason):
            finding.examples.append(Example(places, reason))
        return finding

    def __getitem__(self, kind: str) -> Finding:
        return self._by_kind[kind]

    def __iter__(self) -> Iterator[Finding]:
        """What was found, the most important first."""
        return (finding for finding in self._by_kind.values() if finding.count)
