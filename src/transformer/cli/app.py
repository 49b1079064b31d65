"""The program: its commands, and how errors reach the user."""

import sys
from typing import Annotated

import typer

from transformer.cli.demo import demo
from transformer.cli.evaluate import evaluate
from transformer.cli.info import info
from transformer.cli.train import train, train_help
from transformer.cli.translate import translate
from transformer.errors import TransformerError

EXIT_ERROR = 2

app = typer.Typer(
    name="transformer",
    help="Train a translator from two text files, and translate with it.",
    epilog="Example: transformer train --source corpus.en --target corpus.de --run runs/first",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command(epilog=train_help())(train)
app.command()(translate)
app.command()(evaluate)
app.command()(info)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Options of every command; `main` looks for --debug itself."""


def main() -> None:
    """Runs a command; a refused input is one line on standard error and exit code 2."""
    try:
        app()
    except TransformerError as error:
        if "--debug" in sys.argv:
            raise
        message = " ".join(str(error).split())
        print(f"error: {message}", file=sys.stderr)
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(130)
