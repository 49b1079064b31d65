"""Command-line options for terminology."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.fields import takes

if TYPE_CHECKING:
    from transformer.pipelines.translation.terminology import Terminology


@dataclass(frozen=True)
class TerminologyOptions:
    """The terminology of translations, and the files that it was read from."""

    terminology: "Terminology"
    files: list[Path | None]


def terminology_of(
    ban: Annotated[
        Path | None, typer.Option(help="file of words and phrases that must not be generated, one per line")
    ] = None,
    glossary: Annotated[
        Path | None,
        typer.Option(
            help="file of required translations: source term, tab (comma if .csv), target term; # begins a comment"
        ),
    ] = None,
    protect: Annotated[
        str,
        typer.Option(
            help="spans to keep unchanged: any of urls,tags,entities,placeholders,identifiers,escapes,accelerators,"
            "mentions,emoji,numbers, or all, or none; default: all but numbers"
        ),
    ] = "",
) -> TerminologyOptions:
    """Reads the terminology from the options.

    Raises:
        ConfigError: A kind of span is unknown.
        DataError: A file cannot be read, or has an invalid line.
    """
    from transformer.pipelines.translation.terminology import Terminology
    from transformer.text.lines import read_lines
    from transformer.text.spans import PATTERNS

    banned = [] if ban is None else [line.strip() for line in read_lines(ban, remedy="") if line.strip()]
    terms = [] if glossary is None else _read_glossary(glossary)
    kinds = [kind.strip() for kind in protect.split(",") if kind.strip()]
    special = {"": None, "all": list(PATTERNS), "none": []}
    protected = special.get(protect, kinds)
    return TerminologyOptions(Terminology(banned, terms, protected), [ban, glossary])


def _read_glossary(path: Path) -> list[tuple[str, str]]:
    from transformer.data.config import file_format
    from transformer.data.readers import PairCounts
    from transformer.data.tables import csv_rows
    from transformer.pipelines.translation.terminology import glossary_terms, read_glossary
    from transformer.text.lines import read_lines

    if file_format(str(path)) == ".csv":
        return glossary_terms(csv_rows(path, PairCounts(), "error"), str(path))
    return read_glossary(read_lines(path, remedy=""), str(path))


takes_terminology = takes("terms", terminology_of, "Terms and placeholders")
"""Decorator that adds the options of `terminology_of`, for the parameter `terms`."""
