"""Test lines inside the training text: word for word, and but for case, spaces and punctuation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformer.data.quality.findings import CorpusLine, Findings
from transformer.text.lines import read_lines

WORDS = re.compile(r"\w+")


def loosened(line: str) -> str:
    """The words of a line in lower case."""
    return " ".join(WORDS.findall(line.casefold()))


@dataclass
class TestLines:
    """The lines of test files, to be looked up for every training line.

    Attributes:
        places: loosened line -> all the test lines that come to it.
        sizes: lines of each file.
    """

    places: dict[str, list[CorpusLine]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    _found: dict[tuple[str, int], bool] = field(default_factory=dict)

    __test__ = False  # no test class, whatever its name says

    @classmethod
    def read(cls, paths: Sequence[Path]) -> "TestLines":
        """Reads all lines of the test files.

        Raises:
            DataError: as `read_lines`.
        """
        tests = cls()
        for path in paths:
            tests.sizes[path.name] = 0
            for number, line in enumerate(read_lines(path, invalid="replace"), start=1):
                tests.sizes[path.name] = number
                if loose := loosened(line):
                    tests.places.setdefault(loose, []).append(CorpusLine(path.name, number, line))
        return tests

    def look_up(self, place: CorpusLine, findings: Findings) -> None:
        """Notes a training line that is a test line."""
        if not self.places or not (matches := self.places.get(loosened(place.text))):
            return
        exact = [match for match in matches if match.text.strip() == place.text.strip()]
        findings.add("test-overlap" if exact else "test-overlap-loose", (place, (exact or matches)[0]))
        for match in matches:
            key = match.file, match.line
            self._found[key] = self._found.get(key, False) or match in exact

    def summary(self) -> list[dict[str, Any]]:
        """For each file: its lines, and how many of them are in the training text, exactly and at least loosely."""
        return [
            {
                "file": file,
                "lines": size,
                "exact": sum(exact for (name, _), exact in self._found.items() if name == file),
                "loose": sum(name == file for name, _ in self._found),
            }
            for file, size in self.sizes.items()
        ]
