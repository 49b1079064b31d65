"""The formats of documents, by name, by the end of a file's name, and by content."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Final

from transformer.documents.document import Document
from transformer.errors import ConfigError, DataError
from transformer.text.document_kinds import HEAD_BYTES, document_kind


@dataclass(frozen=True)
class Format:
    """A format of documents.

    Attributes:
        name: Name, as in `--as`.
        suffixes: Ends of file names.
        kind: What `document_kind` calls such a file; empty if content does not tell.
        module: Module in this package whose function `parse(content, name)` reads a document.
        holds_translations: Whether files hold the translation beside its source.
        columns: Columns of a table to translate: numbers, from 1, or names; none to find those with sentences.
    """

    name: str
    suffixes: tuple[str, ...]
    kind: str
    module: str
    holds_translations: bool = False
    columns: tuple[int | str, ...] = ()

    @property
    def is_xml(self) -> bool:
        """Whether files may be named `.xml`, and their content alone tells the format."""
        return self.name in ("xliff", "tmx", "android")

    def parse(self, content: bytes, name: str) -> Document:
        """Reads a document.

        Args:
            content: Bytes of the file.
            name: Name of the file, for messages.

        Raises:
            DataError: It is not of this format.
        """
        parse: Callable[..., Document] = import_module(f"transformer.documents.{self.module}").parse
        return parse(content, name, self.columns) if self.columns else parse(content, name)

    def with_columns(self, columns: Sequence[int | str]) -> "Format":
        """Returns the format with a choice of the columns to translate.

        Raises:
            ConfigError: It has no columns.
        """
        if columns and self.name != "csv":
            raise ConfigError(f"columns are those of tables (csv), but the format is {self.name}; leave out --columns")
        return replace(self, columns=tuple(columns))


FORMATS: Final = (
    Format("po", (".po", ".pot"), "a PO file", "po", holds_translations=True),
    Format("md", (".md", ".markdown", ".mdx"), "a Markdown file with code", "markdown"),
    Format("json", (".json", ".arb"), "a JSON file", "json_messages"),
    Format("srt", (".srt",), "an SRT file", "subtitles"),
    Format("vtt", (".vtt",), "a WebVTT file", "subtitles"),
    Format("html", (".html", ".htm", ".xhtml"), "an HTML page", "html"),
    Format("xliff", (".xlf", ".xliff"), "an XLIFF file", "xliff", holds_translations=True),
    Format("tmx", (".tmx",), "a TMX file", "tmx", holds_translations=True),
    Format("android", (), "an Android resource file", "android"),
    Format("xml", (".xml",), "an XML file", "xml"),
    Format("docx", (".docx", ".docm", ".dotx"), "a DOCX document", "docx"),
    Format("odt", (".odt", ".ott", ".odp", ".ods"), "an ODT document", "odt"),
    Format("pptx", (".pptx", ".ppsx"), "a PPTX presentation", "pptx"),
    Format("properties", (".properties",), "", "properties"),
    Format("strings", (".strings",), "", "apple_strings"),
    Format("csv", (".csv", ".tsv"), "", "csv_table"),
)  # fmt: skip
"""All formats; one whose module is heavy to import is imported when it is used."""
PLAIN_TEXT: Final = Format("txt", (".txt",), "", "plain_text")
"""Plain text, for those who send it as a file; the command line translates it without a document."""


def format_named(name: str) -> Format:
    """Returns a format by its name.

    Raises:
        ConfigError: The name is unknown.
    """
    for form in FORMATS:
        if form.name == name:
            return form
    raise ConfigError(f"{name!r} is not a format of documents; choose from {', '.join(form.name for form in FORMATS)}")


def parse_columns(text: str) -> list[int | str]:
    """Returns the columns that a text names: numbers, or names in the first row, separated by commas."""
    names = [name.strip() for name in text.split(",")]
    return [int(name) if name.isdecimal() else name for name in names if name]


def find_format(path: Path, head: bytes) -> Format | None:
    """Returns the format of a file by its name or, if this tells nothing, by its content; None if it is not a document.

    Args:
        path: Path of the file.
        head: Its first bytes.
    """
    by_name = next((form for form in FORMATS if path.name.lower().endswith(form.suffixes)), None)
    if by_name is not None and by_name.name != "xml":
        return by_name
    kind = document_kind(head)
    by_content = next((form for form in FORMATS if kind and form.kind == kind), None)
    return by_content if by_name is None or (by_content and by_content.is_xml) else by_name


def format_of(path: Path, name: str = "auto") -> Format:
    """Returns the format of a file.

    Args:
        path: Path of the file.
        name: Name of the format; "auto" tells it by name and content.

    Raises:
        ConfigError: The name is unknown.
        DataError: The file cannot be read, or its format is not known.
    """
    form = find_format(path, _read(path)[:HEAD_BYTES]) if name == "auto" else format_named(name)
    if form is None:
        raise DataError(f"{path} is not a document of a known format; choose from {', '.join(f.name for f in FORMATS)}")
    return form


def read_document(path: Path, form: Format) -> Document:
    """Reads a document from a file.

    Raises:
        DataError: It cannot be read, or is not of this format.
    """
    return form.parse(_read(path), str(path))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or 'cannot be read'}; check the path") from error
