"""The command-line program: its commands and its error reports."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final, NoReturn

import typer

from transformer.cli.help import HELP, HelpfulCommand, command_help
from transformer.cli.streams import flush_standard_output, open_streams
from transformer.cli.usage import PROGRAM, usage_error, with_current_spellings
from transformer.errors import TransformerError, printable

EXIT_UNEXPECTED, EXIT_ERROR, EXIT_INTERRUPTED = 1, 2, 130
UsageError: Any = typer.BadParameter.__base__  # base class of all errors in options and arguments

COMMANDS: Final = (
    "demo", "train", "prepare", "translate", "evaluate", "score", "info", "check", "filter", "backtranslate", "distill",
    "average", "quantize", "calibrate", "shortlist", "generate", "perplexity", "classify", "embed", "fill", "import",
    "export", "report", "inspect", "plot", "serve", "launch", "preflight", "recipes", "models", "doctor", "docs",
)  # fmt: skip
MODULES: Final = {"import": "import_model", "filter": "filter_corpus"}
"""Each command is a function in a module of the same name, except those that Python has by this name."""


def make_app(commands: Sequence[str] = COMMANDS) -> typer.Typer:
    """Creates the program with the given commands and imports only their modules."""
    app = typer.Typer(
        name="transformer",
        help="Train a translation model on two text files and translate with it. Other text and image models work too.",
        epilog="Example: transformer train corpus.en corpus.de",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": [*HELP]},
    )
    app.callback(invoke_without_command=True)(_options)
    for name in commands:
        function = MODULES.get(name, name)
        module = import_module(f"transformer.cli.{function}")
        command = getattr(module, function)
        summary = (command.__doc__ or "").splitlines()[0].partition(". ")[0].removesuffix(".")
        app.command(name, cls=HelpfulCommand, short_help=summary, epilog=getattr(module, "EPILOG", None))(command)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"{PROGRAM} {version(PROGRAM)}")
        raise typer.Exit


def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="print the version and exit", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Options of all commands, without which the help is printed; `main` checks for --debug itself."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Runs a command; an error is reported as one line on standard error.

    The exit code is 2 for errors that the program knows, and 1 for all others.
    """
    open_streams()
    command = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    try:
        app = make_app([command] if command in COMMANDS else COMMANDS)
        if command in ("", *COMMANDS) and not set(HELP).isdisjoint(_before_texts(sys.argv)):
            typer.echo(command_help(app, command))
            sys.exit()
        code = app(with_current_spellings(sys.argv[1:], command), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except UsageError as error:
        _exit_with_error(error, usage_error(error.format_message(), command, _known_names(error), _given_value(error)))
    except TransformerError as error:
        _exit_with_error(error, str(error))
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(EXIT_INTERRUPTED)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package == PROGRAM:
            _exit_with_error(error, _describe_unexpected(error, command), EXIT_UNEXPECTED)
        from transformer.cli.missing_package import installation_hint

        _exit_with_error(error, installation_hint(package))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "cannot be read or written"
        _exit_with_error(
            error, f"{error.filename or 'input or output'}: {reason}; check path, permissions and disk space"
        )
    except SystemExit:
        raise
    except BaseException as error:  # a panic of a library in Rust is not an `Exception`
        _exit_with_error(error, _describe_unexpected(error, command), EXIT_UNEXPECTED)
    finally:
        flush_standard_output()


def _before_texts(arguments: Sequence[str]) -> Sequence[str]:
    """Returns the arguments before "--", behind which nothing is an option."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _known_names(error: Any) -> list[str]:
    """Returns the names of the options of the command in which an error in its arguments occurred, or all commands."""
    parameters = error.ctx.command.params if error.ctx else ()
    options = [name for parameter in parameters for name in parameter.opts if name.startswith("--")]
    return options if hasattr(error, "option_name") else list(COMMANDS)


def _given_value(error: Any) -> str:
    """Returns the rejected value of an option, if its error has it."""
    details = error.__cause__.errors() if hasattr(error.__cause__, "errors") else []
    return str(details[0].get("input", "")) if details else ""


def _describe_unexpected(error: BaseException, command: str) -> str:
    """Returns a message for an unexpected error, without the words of a library."""
    called = f"transformer {command}".strip()
    if isinstance(error, MemoryError):
        return f"{called} ran out of memory; give it less text at a time, a smaller model, or more memory"
    again = f"transformer --debug {command} ...".replace("  ", " ")
    return f"{called} failed unexpectedly ({type(error).__name__}); run `{again}` to see where, and report it"


def _exit_with_error(error: BaseException, message: str, code: int = EXIT_ERROR) -> NoReturn:
    if "--debug" in sys.argv:
        raise error
    print(f"error: {printable(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(code)
