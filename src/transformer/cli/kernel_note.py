"""Note that the compiled kernels are missing, which makes a command slow."""

import os

from transformer.cli.verbosity import say
from transformer.errors import printable


def missing_kernels_note() -> str | None:
    """Returns why no compiled kernels are used and how to get them; None if they are, or were switched off."""
    from transformer.kernels.library import ENVIRONMENT_VARIABLE, unavailable_reason  # loads torch

    reason = unavailable_reason()
    if reason is None or os.environ.get(ENVIRONMENT_VARIABLE):
        return None
    return f"note: slower than it could be, because the compiled kernels do not run here ({reason})"


def note_missing_kernels() -> None:
    """Prints the note, if there is one, on standard error."""
    if note := missing_kernels_note():
        say(printable(note))
