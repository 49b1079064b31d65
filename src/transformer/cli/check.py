"""`transformer check`: examines a corpus for problems before training."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.arguments import choose_format
from transformer.cli.corpus import takes_corpus
from transformer.cli.files import check_files
from transformer.cli.outputs import open_output
from transformer.cli.progress import progress_bar
from transformer.cli.translate import OutputOption
from transformer.cli.verbosity import say, takes_verbosity
from transformer.data.config import FILE_FORMATS, DataConfig, file_format
from transformer.errors import ConfigError

if TYPE_CHECKING:
    from transformer.cli.corpus import Corpus
    from transformer.data.inputs import CorpusFile

EXIT_FOUND = 1
FORMATS = ("text", "json", "html")


@takes_verbosity
@takes_corpus
def check(
    tests: Annotated[
        list[Path] | None,
        typer.Option(
            "--test", help="test file, of either side, whose lines must not occur in the corpus; may be repeated"
        ),
    ] = None,
    output_format: Annotated[
        str | None, typer.Option("--format", help="format of the report: 'text' (default), 'json' or 'html'")
    ] = None,
    output_path: OutputOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="same as --format json")] = False,
    *,
    corpus: "Corpus",
) -> None:
    """Examine a parallel corpus: shifts, wrong pairs, languages, characters, duplicates, test lines. Needs no model.

    The exit code is 0 if there are notes at most, 1 for problems or warnings, and 2 if the files cannot be examined.

    Example: transformer check corpus.en corpus.de --test test.en --format html --output report.html
    """
    output_format = choose_format(output_format, "text", "json", as_json=as_json)
    if output_format not in FORMATS:
        raise ConfigError(f"format={output_format!r} is unknown; choose 'text', 'json' or 'html'")
    files = named_files(corpus)
    check_files([*files, *(tests or ())], [output_path])

    from transformer.data.quality.examination import examine  # loads numpy
    from transformer.data.quality.report import text_report
    from transformer.reporting.corpus_page import html_report

    with open_output(output_path, whole=True) as sink, two_texts(corpus, files) as (source, target):
        with progress_bar("lines examined") as advance:
            examination = examine(source, target, tests or (), advance)
        if output_format == "json":
            report = _escape_unprintable(json.dumps(examination.to_dict(), ensure_ascii=False, indent=2)) + "\n"
        else:
            report = (html_report if output_format == "html" else text_report)(examination)
        sink.write(report.encode("utf-8", "backslashreplace"))
    if not examination.is_fine:
        raise typer.Exit(EXIT_FOUND)


def named_files(corpus: "Corpus") -> list[Path]:
    """Returns the files of the corpus.

    Raises:
        ConfigError: The recipe does not train a translation model.
    """
    if corpus.recipe is None and not corpus.overrides and corpus.data.keys() == {"source", "target"}:
        return [Path(corpus.data["source"]), Path(corpus.data["target"])]  # need not have names in UTF-8
    return [path for file in _training_files(corpus) for path in file.paths]


def _training_files(corpus: "Corpus") -> "list[CorpusFile]":
    from transformer.data.inputs import training_files

    settings = corpus.load().data
    if not isinstance(settings, DataConfig):
        raise ConfigError(f"{settings.name} has no sentence pairs to check; give texts of a translation")
    return training_files(settings)


@contextmanager
def two_texts(corpus: "Corpus", files: Sequence[Path]) -> Generator[tuple[Path, Path]]:
    """Yields the source and the target text; those of other corpora are written to temporary files first.

    Args:
        corpus: Corpus of the command line.
        files: Its files. Two are the texts, if they have a line per sentence.
    """
    if len(files) == 2 and not any(file_format(str(path)) in FILE_FORMATS for path in files):
        yield files[0], files[1]
        return
    from transformer.data.inputs import read_files
    from transformer.data.readers import PairCounts

    counts = PairCounts()
    with TemporaryDirectory(prefix="transformer-check-") as folder:
        source, target = (Path(folder) / f"{files[0].name} ({side})" for side in ("source", "target"))
        with open_output(source) as first, open_output(target) as second:
            for pair in read_files(_training_files(corpus), counts):
                for side, text in zip((first, second), pair, strict=True):
                    side.write(f"{text}\n".encode())
        if counts.left_out:
            say(f"note: pairs left out: {counts.describe_left_out()}")
        say(f"note: line n of the report is pair n of {', '.join(map(str, files))}")
        yield source, target


def _escape_unprintable(report: str) -> str:
    """Escapes unprintable characters in JSON, which could manipulate a terminal."""
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in report)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) > 0xFFFF else f"\\u{ord(character):04x}"
