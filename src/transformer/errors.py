"""The errors that users see: one line each, saying what is wrong and what to do."""


def printable(text: str) -> str:
    r"""The text with everything that is not printable spelled out, such as `\x1b` and `\u2028`."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class TransformerError(Exception):
    """Base of every error this package raises on purpose; the command line prints it and exits with code 2."""


class ConfigError(TransformerError, ValueError):
    """A setting breaks a rule: `h=7 does not divide d_model=512; choose a divisor, e.g. 8`."""


class DataError(TransformerError):
    """An input text cannot be used as it is: unequal line counts, invalid UTF-8, an empty file."""


class BundleError(TransformerError):
    """A model folder is not one, is incomplete, or does not match its checksums."""


class CheckpointError(TransformerError):
    """A run folder cannot be started in, or continued."""


class DamageError(CheckpointError):
    """A checkpoint is incomplete, or does not match its checksums; the one before it may be whole."""


class WorkerError(TransformerError):
    """A process that shares the work ended before it was done."""


class TrainingError(TransformerError):
    """Training cannot go on: a loss or a gradient is not finite."""


class NonFiniteError(TrainingError):
    """A batch whose loss or gradient is not finite; nothing was changed by it."""
