"""Contamination: test lines in the training text, matched exactly or except for case, spaces and punctuation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from transformer.data.quality.findings import CorpusLine, Findings
from transformer.text.lines import read_lines

WORDS = re.compile(r"\w+")


def loose_form(line: str) -> str:
    """Returns the words of a line in lower case, without punctuation."""
    return " ".join(WORDS.findall(line.casefold()))


class TestOverlap(TypedDict):
    """The number of lines of a test file, and how many of them are in the training text, exactly and loosely."""

    file: str
    lines: int
    exact: int
    loose: int


@dataclass
class TestLines:
    """The lines of test files, in which every training line is looked up.

    Attributes:
        by_loose_form: Loose form -> all test lines with this form.
        sizes: Number of lines of each file.
    """

    by_loose_form: dict[str, list[CorpusLine]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    _is_exact: dict[tuple[str, int], bool] = field(default_factory=dict)

    __test__ = False  # not a test class, despite its name

    @classmethod
    def read(cls, paths: Sequence[Path]) -> "TestLines":
        """Reads all lines of the test files.

        Raises:
            DataError: a file cannot be read, see `read_lines`.
        """
        tests = cls()
        for path in paths:
            tests.sizes[path.name] = 0
            for number, line in enumerate(read_lines(path, invalid="replace", overlong="cut"), start=1):
                tests.sizes[path.name] = number
                if loose := loose_form(line):
                    tests.by_loose_form.setdefault(loose, []).append(CorpusLine(path.name, number, line))
        return tests

    def look_up(self, line: CorpusLine, findings: Findings) -> None:
        """Adds a finding if a training line is also a test line."""
        if not self.by_loose_form or not (matches := self.by_loose_form.get(loose_form(line.text))):
            return
        exact = [match for match in matches if match.text.strip() == line.text.strip()]
        findings.add("test-overlap" if exact else "test-overlap-loose", (line, (exact or matches)[0]))
        for match in matches:
            key = match.file, match.line
            self._is_exact[key] = self._is_exact.get(key, False) or match in exact

    def summary(self) -> list[TestOverlap]:
        """Returns the overlap of each file."""
        return [
            {
                "file": file,
                "lines": size,
                "exact": sum(exact for (name, _), exact in self._is_exact.items() if name == file),
                "loose": sum(name == file for name, _ in self._is_exact),
            }
            for file, size in self.sizes.items()
        ]
