"""Traits of lines that readers do not see but models learn: forms of characters and spaces, marks of one side alone."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Final

TRAITS: Final = {
    "decomposed": "decomposed characters (not Unicode NFC)",
    "special-space": "no-break or other special spaces",
    "soft-hyphen": "soft hyphens",
    "invisible": "invisible characters",
    "outer-space": "spaces at an end",
    "list-mark": "list marks that the other side lacks",
}
"""Description of each trait after a number of lines."""
COMPOSED: Final = "composed"
"""Lines with composed characters, counted to detect mixed forms."""
PATTERNS: Final = {
    "special-space": re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f]"),
    "soft-hyphen": re.compile("\xad"),
    "invisible": re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff]"),
}
LIST_MARK: Final = re.compile(r"\s*(?:[-–—*]\s|[•‣◦▪●○・])\s*\S")


def line_traits(line: str) -> Iterator[tuple[str, str]]:
    """Yields the traits of a line, each with its position: `U+00A0 at character 17`."""
    if line != line.strip():
        yield "outer-space", ""
    if line.isascii():
        return
    for trait, pattern in PATTERNS.items():
        if match := pattern.search(line):
            yield trait, f"U+{ord(match.group()):04X} at character {match.start() + 1}"
    if not unicodedata.is_normalized("NFC", line):
        yield "decomposed", ""
    elif not unicodedata.is_normalized("NFD", line):
        yield COMPOSED, ""


def has_list_mark(line: str) -> bool:
    """Whether a line begins like an item of a list or a line of a dialogue."""
    return LIST_MARK.match(line) is not None


class TraitCounts:
    """Numbers of source and target lines with each trait.

    Attributes:
        by_trait: Numbers of source and target lines.
    """

    def __init__(self, by_trait: Mapping[str, list[int]] | None = None) -> None:
        self.by_trait = {trait: list(counts) for trait, counts in (by_trait or {}).items()}

    def add(self, source: str, target: str) -> None:
        """Counts the traits of a pair."""
        for side, line in enumerate((source, target)):
            for trait, _ in line_traits(line):
                self._count(trait, side)
        if (mark := has_list_mark(source)) != has_list_mark(target):
            self._count("list-mark", int(not mark))

    def __add__(self, other: "TraitCounts") -> "TraitCounts":
        """Returns the sums."""
        total = TraitCounts(self.by_trait)
        for trait, counts in other.by_trait.items():
            for side, count in enumerate(counts):
                total._count(trait, side, count)
        return total

    def lines(self) -> list[str]:
        """Returns a line for each side that has a trait: `source lines with: soft hyphens 3, spaces at an end 7`."""
        none = [0, 0]
        report: list[str] = []
        for side, name in enumerate(("source", "target")):
            counts = {trait: self.by_trait.get(trait, none)[side] for trait in TRAITS}
            composed = self.by_trait.get(COMPOSED, none)[side]
            mixed = f" (composed in {composed:,} others)" if composed else ""
            shown = [
                f"{TRAITS[trait]} {count:,}{mixed if trait == 'decomposed' else ''}"
                for trait, count in counts.items()
                if count
            ]
            if shown:
                report.append(f"{name} lines with: {', '.join(shown)}")
        return report

    def _count(self, trait: str, side: int, count: int = 1) -> None:
        self.by_trait.setdefault(trait, [0, 0])[side] += count
