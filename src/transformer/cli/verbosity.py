"""Notes on standard error, and the options --quiet and --verbose of all commands."""

import inspect
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Annotated, Literal

import typer

from transformer.cli.fields import set_signature
from transformer.errors import LOGGER, ConfigError, escape_controls

QuietOption = Annotated[bool, typer.Option("--quiet", help="print nothing but the results and errors")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="print all notes, and progress even without a terminal")]
Verbosity = Literal["quiet", "normal", "verbose"]
_verbosity: ContextVar[Verbosity] = ContextVar("verbosity", default="normal")


def takes_verbosity(command: Callable[..., None]) -> Callable[..., None]:
    """Decorates a command: adds --quiet and --verbose, which `say` and the progress of a command obey.

    A command that has parameters of these names receives their values too.
    """
    parameters = inspect.signature(command).parameters

    @wraps(command)
    def run(*arguments: object, quiet: bool = False, verbose: bool = False, **options: object) -> None:
        if quiet and verbose:
            raise ConfigError("--verbose and --quiet contradict each other; leave out one of them")
        values = {"quiet": quiet, "verbose": verbose}
        token = _verbosity.set("quiet" if quiet else "verbose" if verbose else "normal")
        LOGGER.disabled = quiet
        try:
            command(*arguments, **options, **{name: value for name, value in values.items() if name in parameters})
        finally:
            _verbosity.reset(token)
            LOGGER.disabled = False

    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in (("quiet", QuietOption), ("verbose", VerboseOption))
        if name not in parameters
    ]
    set_signature(run, [*parameters.values(), *added])
    return run


def is_quiet() -> bool:
    """Whether only results and errors are printed."""
    return _verbosity.get() == "quiet"


def is_verbose() -> bool:
    """Whether progress is printed even without a terminal."""
    return _verbosity.get() == "verbose"


def say(message: str) -> None:
    """Prints a note on standard error, unless the command is quiet."""
    if not is_quiet():
        print(escape_controls(message), file=sys.stderr)


@contextmanager
def notes_for_warnings() -> Generator[None]:
    """Prints the warnings for users as notes, without the place in the source that Python names."""
    with warnings.catch_warnings(record=True) as caught:
        yield
    for warning in caught:
        if warning.category is UserWarning:
            say(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def prompt_on_terminal(message: str) -> None:
    """Prints what to type, if standard input is a terminal, where a command would otherwise wait silently."""
    if sys.stdin.isatty():
        say(message)
