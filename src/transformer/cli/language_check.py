"""Notes on input that does not seem to be in a language that a model translates from."""

from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformer.cli.notes import Notes

SAMPLE_LINES = 2000
"""Number of lines at the beginning of the input by which its language is detected."""
LONG_LINE = 200
"""Number of characters from which the language of a single line is detected."""
MIN_PROBABILITY = 0.99
"""Probability above which a long line is said to be in another language."""


class LanguageCheck:
    """Detects the language of input in a thread, because loading the detector takes as long as some hundred lines.

    Args:
        languages: Languages that the input may be in (BCP 47); if none is known, nothing is checked.
        notes: Collector of the notes.
    """

    def __init__(self, languages: Sequence[str], notes: "Notes") -> None:
        self._languages, self._notes = languages, notes
        self._lines: SimpleQueue[tuple[int, Sequence[str]] | None] = SimpleQueue()
        self._sample: list[str] = []
        self._thread: Thread | None = None
        self._is_settled = False

    def add(self, number: int, lines: Sequence[str]) -> None:
        """Adds lines of the input.

        Args:
            number: Number of the first line, from 1.
            lines: The lines.
        """
        from transformer.text.languages import MIN_SAMPLE_LETTERS

        if not self._languages or self._is_settled:
            return
        self._sample += lines[: max(0, SAMPLE_LINES - len(self._sample))]
        self._lines.put((number, [line if len(line) >= LONG_LINE else "" for line in lines]))
        if self._thread is None and sum(map(len, self._sample)) >= MIN_SAMPLE_LETTERS:
            self._thread = Thread(target=self._run, daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Waits for the detection and adds its notes; a short input is not looked at."""
        if self._thread is not None:
            self._lines.put(None)
            self._thread.join()

    def _run(self) -> None:
        from transformer.text.languages import base_language, detect_language, language_name

        name = " or ".join(map(language_name, self._languages))
        expected = {base_language(language) for language in self._languages}
        detected = detect_language(list(self._sample))
        if detected and base_language(detected) not in expected:
            self._is_settled = True  # no further line is kept
            self._notes.say(f"the input seems to be in {language_name(detected)}, but the model translates from {name}")
            return
        while (item := self._lines.get()) is not None:
            number, lines = item
            for offset, line in enumerate(lines):
                if line and (other := _other_language(line, expected)):
                    self._notes.add(number + offset, [f"seems to be in {language_name(other)}, not in {name}"])


def _other_language(line: str, expected: Collection[str]) -> str | None:
    """Returns the language of a line if it is surely none of those expected, which have no script or region."""
    from transformer.text.languages import base_language, classify

    detected, probability = classify(line)
    is_other = base_language(detected) not in expected and probability > MIN_PROBABILITY
    return detected if is_other else None


@contextmanager
def check_language(languages: Sequence[str], notes: "Notes") -> Generator[LanguageCheck]:
    """Checks the language of the input; the notes are complete at the end, also if an error ends the command."""
    check = LanguageCheck(languages, notes)
    try:
        yield check
    finally:
        check.finish()
