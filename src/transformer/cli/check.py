"""`transformer check`: what is wrong with a corpus, before anything is trained on it."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from transformer.cli.progress import counted
from transformer.errors import ConfigError, DataError

EXIT_FOUND = 1
FORMATS = ("text", "json", "html")


def check(
    source: Annotated[Path, typer.Argument(help="text to translate from, plain or .gz, one sentence a line")],
    target: Annotated[Path, typer.Argument(help="its translation, line by line")],
    tests: Annotated[
        list[Path] | None, typer.Option("--test", help="test file of either side, to find in the text; may be repeated")
    ] = None,
    output_format: Annotated[str, typer.Option("--format", help="'text', 'json' or 'html' (one page)")] = "text",
    out: Annotated[Path | None, typer.Option("--out", help="file to write; standard output if not given")] = None,
) -> None:
    """Examine two text files: shifts, wrong pairs, languages, characters, repeats, test lines. No model is needed.

    Exit code 0: fine, or notes only. 1: problems or warnings. 2: the files cannot be examined.

    Example: transformer check corpus.en corpus.de --test test.en --format html --out report.html
    """
    if output_format not in FORMATS:
        raise ConfigError(f"format={output_format!r} is unknown; choose 'text', 'json' or 'html'")
    inputs = {path.resolve() for path in (source, target, *(tests or ()))}
    if out is not None and out.resolve() in inputs:
        raise DataError(f"{out} is both input and output; choose another output file")

    from transformer.data.doctor.examination import examine  # loads numpy
    from transformer.data.doctor.page import html_report
    from transformer.data.doctor.report import text_report

    with counted("lines looked at") as advance:
        examination = examine(source, target, tests or (), advance)
    if output_format == "json":
        report = json.dumps(examination.to_dict(), ensure_ascii=False, indent=2) + "\n"
    else:
        report = (html_report if output_format == "html" else text_report)(examination)
    encoded = report.encode("utf-8", "backslashreplace")
    if out is None:
        sys.stdout.buffer.write(encoded)
        sys.stdout.buffer.flush()
    else:
        out.write_bytes(encoded)
    if not examination.is_fine:
        raise typer.Exit(EXIT_FOUND)
