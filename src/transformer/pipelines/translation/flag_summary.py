"""Summary of the flags of many translations."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from transformer.pipelines.translation.results import UNSEEN, UNSURE

UNSURE_NOTE: Final = "unsure: the translation is likely to be bad"
"""Note on all unsure translations, whose flags differ in their confidence."""
MAX_NOTES: Final = 10
"""Maximum number of notes of a summary."""
MAX_FLAGS: Final = 1000
"""Maximum number of different flags that are counted one by one, so that a long text takes no more memory."""
MAX_CHARACTERS: Final = 20
"""Maximum number of characters that are named."""


@dataclass
class FlagSummary:
    """Counts of flags by their texts.

    Attributes:
        n_lines: Number of lines with each flag.
        first_lines: First line with each flag, counted from 1.
        n_uncounted: Number of flags beyond `MAX_FLAGS` different ones.
        unseen: Number of lines with each character that was never seen in training.
        n_copied: Number of lines that were copied because there is nothing to translate.
    """

    n_lines: Counter[str] = field(default_factory=Counter)
    first_lines: dict[str, int] = field(default_factory=dict)
    n_uncounted: int = 0
    unseen: Counter[str] = field(default_factory=Counter)
    n_copied: int = 0

    def add(self, number: int, flags: Sequence[str], unseen: Sequence[str] = ()) -> None:
        """Adds the flags of a line.

        Args:
            number: Number of the line, from 1.
            flags: Flags of its translation.
            unseen: Characters of the line that were never seen in training.
        """
        self.unseen.update(unseen)
        for flag in flags:
            if flag.startswith(UNSEEN):
                continue
            if flag.startswith(UNSURE):
                flag = UNSURE_NOTE
            if flag not in self.n_lines and len(self.n_lines) >= MAX_FLAGS:
                self.n_uncounted += 1
                continue
            self.n_lines[flag] += 1
            self.first_lines.setdefault(flag, number)

    @property
    def hides_lines(self) -> bool:
        """Whether there are notes on lines that `notes` does not name."""
        return bool(self.unseen) or len(self.n_lines) > MAX_NOTES or any(n > 1 for n in self.n_lines.values())

    def notes(self) -> list[str]:
        """Returns one note per flag, with its first line and the number of others, the most frequent ones first."""
        notes = [self._note(flag) for flag, _ in self.n_lines.most_common(MAX_NOTES)]
        if self.unseen:
            named = ", ".join(f"{character!r} ({n})" for character, n in self.unseen.most_common(MAX_CHARACTERS))
            n_more = len(self.unseen) - MAX_CHARACTERS
            notes.append(UNSEEN + named + (f" and {n_more:,} more characters" if n_more > 0 else ""))
        if len(self.n_lines) > MAX_NOTES:
            n_named = sum(n for _, n in self.n_lines.most_common(MAX_NOTES))
            n_others = self.n_lines.total() - n_named + self.n_uncounted
            notes.append(f"{n_others:,} other note{'s' * (n_others > 1)}")
        if self.n_copied:
            lines, were = ("line", "was") if self.n_copied == 1 else ("lines", "were")
            notes.append(f"{self.n_copied:,} {lines} without letters, or with addresses alone, {were} copied")
        return notes

    def _note(self, flag: str) -> str:
        n_others = self.n_lines[flag] - 1
        others = f" and {n_others:,} other{'s' * (n_others > 1)}" if n_others else ""
        return f"line {self.first_lines[flag]}{others}: {flag}"
