"""Errors and notes shown to users: one line each, with what is wrong and what to do about it."""

import logging
from typing import Final

LOGGER: Final = logging.getLogger("transformer")
"""Logger of the notes. A program that configures no logging prints them on standard error."""


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


DIRECTION_MARKS: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that change the order in which text is displayed, up to the end of the line."""
TERMINAL_ESCAPES: Final = {code: _escape(chr(code)) for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, *DIRECTION_MARKS)}
"""Escapes of characters that no program output needs: direction marks, line separators and C1 controls.

C1 controls are commands to some terminals. The C0 controls are missing because progress bars use them.
"""
ESCAPES: Final = TERMINAL_ESCAPES | {code: _escape(chr(code)) for code in range(0x20) if chr(code) not in "\t\n"}


def escape_controls(text: str) -> str:
    r"""Escapes control characters and direction marks, e.g. as `\x1b` or `\u202e`; all other text stays as it is."""
    return text.translate(ESCAPES)


def printable(text: str) -> str:
    r"""Escapes every character of a text that is not printable, e.g. as `\x1b` or `\u2028`."""
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def counted(count: int, noun: str) -> str:
    """Returns a number with a noun whose plural ends in s, e.g. `1 line` or `2,000 lines`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def note(text: str) -> None:
    """Prints a one-line note: worth knowing, but not an error."""
    LOGGER.warning("note: %s", printable(" ".join(text.split())))


class TransformerError(Exception):
    """Base class of the errors that this package raises; the command line prints them and exits with code 2."""


class ConfigError(TransformerError, ValueError):
    """A setting breaks a rule: `h=7 does not divide d_model=512; choose a divisor, e.g. 8`."""


class DataError(TransformerError):
    """An input text cannot be used as it is: unequal line counts, invalid UTF-8, an empty file."""


class BundleError(TransformerError):
    """A folder is not a model folder, is incomplete, or does not match its checksums."""


class CheckpointError(TransformerError):
    """A training run cannot be started in its folder, or cannot be resumed."""


class DamageError(CheckpointError):
    """A checkpoint is incomplete or does not match its checksums; the previous one may be intact."""


class OutputError(TransformerError):
    """A file or folder cannot be written, e.g. because the disk is full; nothing remains under its name.

    Args:
        path: Path of the file or folder.
        reason: Reason that the operating system gives.
        advice: Advice to the user.
    """

    def __init__(self, path: object, reason: str, advice: str) -> None:
        super().__init__(path, reason, advice)
        self.reason = reason

    def __str__(self) -> str:
        """Returns the message."""
        return "{}: {}; {}".format(*self.args)


class WorkerError(TransformerError):
    """A worker process ended before its work was complete."""


class TrainingError(TransformerError):
    """Training cannot continue because a loss or a gradient is not finite."""


class NonFiniteError(TrainingError):
    """The loss or the gradient of a batch is not finite; the batch has changed nothing."""
