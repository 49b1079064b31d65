"""Statistics of the training sources: sentences per line, letters, their case, and characters."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from transformer.text.case import LetterCase, line_case
from transformer.text.sentences import count_sentences, has_letter

RARE: Final = 0.005
"""Share of the training lines up to which text without letters counts as not learned."""
COMMON: Final = 0.1
"""Share of the training lines from which on a number of sentences counts as learned.

A model with two sentences in 0.9 % of its training lines loses 8 BLEU on lines of two (`benchmarks/translation`).
"""


@dataclass
class SourceText:
    """Statistics of the source lines that a model was trained on.

    Attributes:
        sentences: Number of lines by their number of sentences.
        without_letters: Number of lines without a letter.
        characters: Characters that occur; None if they are not known.
        cases: Number of lines by their case, see `line_case`; empty if it is not known.
    """

    sentences: Counter[int] = field(default_factory=Counter)
    without_letters: int = 0
    characters: set[str] | None = field(default_factory=set)
    cases: Counter[str] = field(default_factory=Counter)

    def count(self, lines: Iterable[str], language: str = "") -> None:
        """Adds lines, which are normalized as the model sees them."""
        for line in lines:
            self.sentences[max(1, count_sentences(line, language))] += 1
            self.without_letters += not has_letter(line)
            if case := line_case(line):
                self.cases[case] += 1
            if self.characters is not None and not self.characters.issuperset(line):
                self.characters.update(line)

    def add(self, other: "SourceText") -> None:
        """Adds the counts of other lines."""
        self.sentences += other.sentences
        self.without_letters += other.without_letters
        self.cases += other.cases
        self.add_characters(other.characters)

    def add_characters(self, characters: set[str] | None) -> None:
        """Adds characters; unknown ones (None) make the union unknown."""
        if self.characters is None or characters is None:
            self.characters = None
        else:
            self.characters |= characters

    @property
    def typical_sentences(self) -> int:
        """Median number of sentences of a line."""
        half, below = self.sentences.total() / 2, 0
        for n_sentences, n_lines in sorted(self.sentences.items()):
            below += n_lines
            if below >= half:
                return n_sentences
        return 1

    @property
    def max_sentences(self) -> int:
        """Largest number of sentences of a line that at least `COMMON` of the lines have or exceed."""
        threshold, above = COMMON * self.sentences.total(), 0
        for n_sentences, n_lines in sorted(self.sentences.items(), reverse=True):
            above += n_lines
            if above >= threshold:
                return n_sentences
        return 1

    @property
    def has_text_without_letters(self) -> bool:
        """Whether training had enough lines without letters to learn from."""
        return self.without_letters > RARE * self.sentences.total()

    def has_case(self, case: LetterCase) -> bool:
        """Whether training had enough lines of a case to learn from; False if they were not counted."""
        return self.cases[case] >= max(1, COMMON * self.sentences.total())

    def to_dict(self) -> dict[str, object]:
        """Returns the statistics as JSON values."""
        return {
            "sentences": {str(n_sentences): n_lines for n_sentences, n_lines in sorted(self.sentences.items())},
            "without_letters": self.without_letters,
            "characters": None if self.characters is None else "".join(sorted(self.characters)),
            "cases": dict(sorted(self.cases.items())),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> "SourceText":
        """Creates the statistics from the values of `to_dict`.

        Raises:
            ValueError: The values are not those of `to_dict`.
        """
        sentences, characters, without_letters = (
            values.get(key) for key in ("sentences", "characters", "without_letters")
        )
        if not isinstance(sentences, Mapping) or not isinstance(without_letters, int):
            raise ValueError(f"source_text={str(values)[:60]!r} lacks its counts; train or import the model again")
        counts = Counter({int(n_sentences): int(n_lines) for n_sentences, n_lines in sentences.items()})
        cases = values.get("cases", {})  # earlier versions did not count them
        if not isinstance(cases, Mapping):
            raise ValueError(f"source_text={str(values)[:60]!r} has damaged counts; train or import the model again")
        return cls(
            counts,
            without_letters,
            set(characters) if isinstance(characters, str) else None,
            Counter({str(case): int(n_lines) for case, n_lines in cases.items()}),
        )
