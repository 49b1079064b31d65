"""Options of `transformer translate` for documents."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from transformer.cli.fields import takes
from transformer.errors import ConfigError

if TYPE_CHECKING:
    from transformer.cli.documents import DocumentFile
    from transformer.pipelines.translation.documents import DocumentOptions

REPORT_SUFFIXES: Final = (".tsv", ".json")
"""Ends of the names of reports."""


@dataclass(frozen=True)
class DocumentSettings:
    """Options of the command line for documents.

    Attributes:
        translate_all: Whether segments that have a translation are translated anew.
        fuzzy: Whether translations that are to be reviewed are replaced.
        mark: Which machine translations are marked for review; None if it was not given.
        dry_run: Whether segments are only counted.
        columns: Columns of a table to translate, separated by commas; None if it was not given.
        report: File for all segments that are unsure or left untranslated; None if it was not given.
    """

    translate_all: bool = False
    fuzzy: bool = False
    mark: Literal["all", "unsure", "none"] | None = None
    dry_run: bool = False
    columns: str | None = None
    report: Path | None = None

    def refuse(self) -> None:
        """Checks that no option for documents was given, as the input is text.

        Raises:
            ConfigError: One was given.
        """
        options = {"--all": self.translate_all, "--fuzzy": self.fuzzy, "--mark": self.mark, "--dry-run": self.dry_run,
                   "--columns": self.columns, "--report": self.report}  # fmt: skip
        for name, value in options.items():
            if value:
                raise ConfigError(f"{name} is for documents, but the input is text; leave it out")

    def options(self, min_confidence: float | None = None) -> "DocumentOptions":
        """Returns the options of the translation."""
        from transformer.pipelines.translation.documents import DocumentOptions

        return DocumentOptions(not self.translate_all, self.fuzzy, self.mark or "all", min_confidence)

    def chosen(self, documents: "Sequence[DocumentFile]") -> "list[DocumentFile]":
        """Returns the documents with the chosen columns.

        Raises:
            ConfigError: Columns were chosen, and no document is a table.
        """
        from transformer.documents.formats import parse_columns

        columns = parse_columns(self.columns or "")
        if not columns:
            return [*documents]
        has_table = any(file.form.name == "csv" for file in documents)
        return [
            replace(file, form=file.form.with_columns(columns)) if file.form.name == "csv" or not has_table else file
            for file in documents
        ]


def settings_of(
    translate_all: Annotated[
        bool,
        typer.Option(
            "--all/--only-untranslated", help="translate anew what has a translation in the file; default: keep"
        ),
    ] = False,
    fuzzy: Annotated[bool, typer.Option("--fuzzy", help="replace translations that the file marks as fuzzy")] = False,
    mark: Annotated[
        Literal["all", "unsure", "none"] | None,
        typer.Option(
            help="translations to mark for review where the format can, e.g. as fuzzy: all (default), unsure or none"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="count segments and words of documents, and translate nothing")
    ] = False,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="columns of a table (.csv, .tsv) to translate: names in its first row, or numbers from 1; default: "
            "those that hold sentences",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="file (.tsv or .json) for all segments of documents that are unsure or left untranslated, with line, "
            "text, translation and reason",
        ),
    ] = None,
) -> DocumentSettings:
    """Builds the settings from the command line.

    Raises:
        ConfigError: A report cannot be written in this format, or nothing is translated.
    """
    if report is not None and report.suffix not in REPORT_SUFFIXES:
        raise ConfigError(f"--report {report}: name a file that ends in {' or '.join(REPORT_SUFFIXES)}")
    if report is not None and dry_run:
        raise ConfigError("--report needs translations, and --dry-run makes none; leave out one of them")
    return DocumentSettings(translate_all, fuzzy, mark, dry_run, columns, report)


takes_documents = takes("documents", settings_of, "Documents")
"""Decorator that adds the options of `settings_of`, for the parameter `documents`."""
