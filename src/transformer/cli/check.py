"""`transformer check`: examines a corpus for problems before training."""

import json
from pathlib import Path
from typing import Annotated

import typer

from transformer.cli.outputs import open_output
from transformer.cli.progress import counted
from transformer.cli.translate import refuse_same_files
from transformer.errors import ConfigError

EXIT_FOUND = 1
FORMATS = ("text", "json", "html")


def check(
    source: Annotated[Path, typer.Argument(help="source text, one sentence per line; plain, .gz or .zst")],
    target: Annotated[Path, typer.Argument(help="its translation, aligned line by line")],
    tests: Annotated[
        list[Path] | None,
        typer.Option(
            "--test", help="test file, of either side, whose lines must not occur in the corpus; may be repeated"
        ),
    ] = None,
    output_format: Annotated[
        str, typer.Option("--format", help="format of the report: 'text', 'json' or 'html'")
    ] = "text",
    output_path: Annotated[
        Path | None, typer.Option("--output", help="file to write; standard output if not given")
    ] = None,
) -> None:
    """Examine a parallel corpus: shifts, wrong pairs, languages, characters, duplicates, test lines. Needs no model.

    The exit code is 0 if there are notes at most, 1 for problems or warnings, and 2 if the files cannot be examined.

    Example: transformer check corpus.en corpus.de --test test.en --format html --output report.html
    """
    if output_format not in FORMATS:
        raise ConfigError(f"format={output_format!r} is unknown; choose 'text', 'json' or 'html'")
    refuse_same_files([source, target, *(tests or ())], [output_path])

    from transformer.data.quality.examination import examine  # loads numpy
    from transformer.data.quality.report import text_report
    from transformer.reporting.corpus_page import html_report

    with open_output(output_path, whole=True) as sink:
        with counted("lines examined") as advance:
            examination = examine(source, target, tests or (), advance)
        if output_format == "json":
            report = _escape_unprintable(json.dumps(examination.to_dict(), ensure_ascii=False, indent=2)) + "\n"
        else:
            report = (html_report if output_format == "html" else text_report)(examination)
        sink.write(report.encode("utf-8", "backslashreplace"))
    if not examination.is_fine:
        raise typer.Exit(EXIT_FOUND)


def _escape_unprintable(report: str) -> str:
    """Escapes unprintable characters in JSON, which could manipulate a terminal."""
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in report)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) > 0xFFFF else f"\\u{ord(character):04x}"
