"""The options that bind translations to words and spans."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.search import takes

if TYPE_CHECKING:
    from transformer.pipelines.translation.terminology import Terminology


@dataclass(frozen=True)
class TerminologyOptions:
    """What translations are bound to, and the files that say so."""

    terminology: "Terminology"
    files: list[Path | None]


def terminology_of(
    ban: Annotated[Path | None, typer.Option(help="file with words and phrases that are never written")] = None,
    glossary: Annotated[
        Path | None,
        typer.Option(help="file of source term, tab, target term: how terms must be translated; # begins a note"),
    ] = None,
    protect: Annotated[
        str, typer.Option(help="spans to keep as they are: any of placeholders,tags,entities,urls,numbers, or all")
    ] = "",
) -> TerminologyOptions:
    """What the files and kinds bind translations to.

    Raises:
        ConfigError: an unknown kind.
        DataError: a file that cannot be read, or a line of it that binds nothing.
    """
    from transformer.pipelines.translation.terminology import PATTERNS, Terminology, read_glossary
    from transformer.text.lines import read_lines

    banned = [] if ban is None else [line.strip() for line in read_lines(ban, remedy="") if line.strip()]
    terms = [] if glossary is None else read_glossary(read_lines(glossary, remedy=""), str(glossary))
    kinds = [kind.strip() for kind in protect.split(",") if kind.strip()]
    return TerminologyOptions(
        Terminology(banned, terms, list(PATTERNS) if kinds == ["all"] else kinds), [ban, glossary]
    )


takes_terminology = takes("bound", terminology_of, "Terms and placeholders")
"""Gives a command the options of `terminology_of` for its parameter `bound`."""
