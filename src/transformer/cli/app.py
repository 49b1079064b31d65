"""The program: its commands, and how errors reach the user."""

import sys
from typing import Annotated, Any, NoReturn

import typer

from transformer.cli.average import average
from transformer.cli.check import check
from transformer.cli.demo import demo
from transformer.cli.evaluate import evaluate
from transformer.cli.info import info
from transformer.cli.prepare import prepare
from transformer.cli.quantize import quantize
from transformer.cli.report import report
from transformer.cli.score import score
from transformer.cli.shortlist import shortlist
from transformer.cli.train import train, train_help
from transformer.cli.translate import translate
from transformer.errors import TransformerError

EXIT_ERROR, EXIT_INTERRUPTED = 2, 130
UsageError: Any = typer.BadParameter.__base__  # of every mistake in options and arguments

app = typer.Typer(
    name="transformer",
    help="Train a translator from two text files, and translate with it.",
    epilog="Example: transformer train --source corpus.en --target corpus.de --run runs/first",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command(epilog=train_help())(train)
app.command(epilog="Example: transformer prepare --source corpus.en --target corpus.de --out prepared")(prepare)
app.command()(translate)
app.command()(evaluate)
app.command()(score)
app.command()(info)
app.command()(check)
app.command()(average)
app.command()(quantize)
app.command()(shortlist)
app.command()(report)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Options of every command; `main` looks for --debug itself."""


def main() -> None:
    """Runs a command; whatever is refused is one line on standard error and exit code 2."""
    try:
        sys.exit(app(standalone_mode=False))
    except UsageError as error:
        _refuse(error, f"{error.format_message()} See transformer --help.")
    except TransformerError as error:
        _refuse(error, str(error))
    except BrokenPipeError:
        sys.exit(0)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        _refuse(
            error, f"{error.filename or 'input or output'}: {error.strerror or error}; check path, rights and space"
        )


def _refuse(error: Exception, message: str) -> NoReturn:
    if "--debug" in sys.argv:
        raise error
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(EXIT_ERROR)
