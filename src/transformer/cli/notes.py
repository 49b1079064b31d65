"""Notes on lines, printed on standard error."""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from transformer.errors import ConfigError, escape_controls


class Notes:
    """Collects the notes on lines.

    Args:
        verbose: Whether every note is printed at once, with the number of its line.

    Raises:
        ConfigError: Notes are to be printed and not to be printed.
    """

    def __init__(self, *, verbose: bool, quiet: bool) -> None:
        from transformer.pipelines.translation.flag_summary import FlagSummary

        if verbose and quiet:
            raise ConfigError("--verbose and --quiet contradict each other; leave out one of them")
        self._verbose, self._quiet, self._summary = verbose, quiet, FlagSummary()

    def add(self, number: int, flags: Sequence[str], unseen: Sequence[str] = ()) -> None:
        """Adds the notes on a line.

        Args:
            number: Number of the line, from 1.
            flags: Notes on the line.
            unseen: Characters of the line that were never seen in training.
        """
        if not self._verbose:
            self._summary.add(number, flags, unseen)
            return
        for flag in flags:
            self.say(f"line {number}: {flag}")

    def add_copied(self) -> None:
        """Counts a line that was copied because there is nothing to translate."""
        self._summary.n_copied += 1

    def say(self, message: str) -> None:
        """Prints a message that is not about a line."""
        if not self._quiet:
            print(escape_controls(message), file=sys.stderr)

    def summarize(self) -> None:
        """Prints the summary of all notes."""
        for note in self._summary.notes():
            self.say(note)
        if self._summary.hides_lines:
            self.say("(--verbose names all lines)")


@contextmanager
def collect_notes(*, verbose: bool, quiet: bool) -> Generator[Notes]:
    """Collects notes and prints their summary at the end, also if an error ends the command."""
    notes = Notes(verbose=verbose, quiet=quiet)
    try:
        yield notes
    finally:
        notes.summarize()
