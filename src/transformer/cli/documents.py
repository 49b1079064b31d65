"""Documents in `transformer translate`: files whose text is translated in place, one by one or a folder of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from transformer.cli.document_report import open_report
from transformer.cli.document_settings import DocumentSettings
from transformer.cli.files import check_files, check_new_folder, check_readable
from transformer.cli.notes import Notes
from transformer.cli.outputs import open_output
from transformer.cli.progress import progress_bar_beside
from transformer.cli.verbosity import say
from transformer.errors import ConfigError, DataError, OutputError, counted

if TYPE_CHECKING:
    from transformer.documents.document import Document
    from transformer.documents.formats import Format
    from transformer.pipelines.translation.documents import DocumentOptions, DocumentReport
    from transformer.pipelines.translation.results import Translation
    from transformer.pipelines.translation.translator import Translator

MAX_SHOWN = 10
"""Maximum number of problems that are named without --verbose."""


@dataclass(frozen=True)
class DocumentFile:
    """A document to translate.

    Attributes:
        path: File to read.
        output: File to write; None is standard output.
        form: Format.
    """

    path: Path
    output: Path | None
    form: "Format"


def find_documents(
    input_path: Path | None, output: Path | None, name: str, *, are_counted: bool = False
) -> list[DocumentFile]:
    """Returns the documents that an input names; none if it is text to translate line by line.

    Args:
        input_path: File or folder; None is standard input.
        output: File or folder to write; None is standard output.
        name: Value of --as.
        are_counted: Whether the documents are only counted, so that a folder needs no output.

    Raises:
        ConfigError: The format is unknown, or a folder has no place to be written to.
        DataError: A file cannot be read, or a folder has no document.
    """
    if name == "text":
        return []
    from transformer.documents.formats import find_format, format_named

    form = None if name == "auto" else format_named(name)
    if input_path is None:
        if form is not None:
            raise ConfigError(f"--as {name} needs a file; add --input FILE")
        return []
    check_readable(input_path, may_be_folder=True)
    if input_path.is_dir():
        return _documents_of_folder(input_path, output or (input_path if are_counted else None), form)
    if form is None and input_path.is_file():  # the beginning of a pipe can be read only once
        form = find_format(input_path, _head(input_path))
    return [DocumentFile(input_path, output, form)] if form else []


def _documents_of_folder(folder: Path, output: Path | None, form: "Format | None") -> list[DocumentFile]:
    from transformer.documents.formats import FORMATS, find_format

    if output is None:
        raise ConfigError(f"{folder} is a folder; name one for the translations with --output")
    if output.is_file():
        raise OutputError(output, "it is a file, but the input is a folder", "choose another folder")
    check_new_folder(output, may_be_used=True)
    is_inside = output.resolve() != folder.resolve()
    documents = [
        DocumentFile(path, output / path.relative_to(folder), chosen)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not (is_inside and path.resolve().is_relative_to(output.resolve()))
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and (chosen := find_format(path, _head(path)))
        and form in (None, chosen)
    ]
    if not documents:
        names = ", ".join(sorted(suffix for known in FORMATS for suffix in known.suffixes))
        raise DataError(f"{folder} has no document of a known format ({names}); check the path")
    return documents


def _head(path: Path) -> bytes:
    from transformer.text.document_kinds import HEAD_BYTES

    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def check_documents(
    documents: Sequence[DocumentFile],
    files: Sequence[Path | None],
    line_options: Mapping[str, object],
    report: Path | None = None,
) -> None:
    """Checks files and options before a model is loaded. A document that holds both languages may replace itself.

    Args:
        documents: Documents.
        files: Further files to read.
        line_options: Values of options that need lines of text, by name.
        report: File to write beside the documents.

    Raises:
        ConfigError: An option needs lines of text.
        DataError: A file cannot be read, or a document would be overwritten.
        OutputError: An output cannot be written.
    """
    for name, value in line_options.items():
        if value:
            raise ConfigError(f"{name} needs lines of text, but the input is a document; leave it out or add --as text")
    file = documents[0]
    replaces_itself = file.form.holds_translations and file.output and file.output.exists()
    is_same = replaces_itself and file.output.samefile(file.path)  # pyright: ignore[reportOptionalMemberAccess]
    outputs = [file.output, report] if len(documents) == 1 else [report]
    check_files([*files] if is_same else [file.path, *files], outputs)


def refuse_document(path: Path) -> None:
    """Refuses a file that is not plain text, whose markup would be translated and lost.

    Raises:
        DataError: It is a document, an archive or the like, or it cannot be read.
    """
    from transformer.text.document_kinds import HEAD_BYTES
    from transformer.text.lines import open_bytes

    if path.is_file():  # the beginning of a pipe can be read only once
        with open_bytes(path) as stream:
            refuse_kind(stream.read(HEAD_BYTES), str(path))


def refuse_kind(head: bytes, name: str) -> None:
    """Refuses what does not begin as plain text.

    Raises:
        DataError: It is a document, an archive or the like.
    """
    from transformer.text.document_kinds import document_kind

    if kind := document_kind(head):
        raise DataError(
            f"{name} is {kind}, not plain text, and translating it line by line would spoil it; "
            "give its sentences as text, one per line, or insist with --as text"
        )


def count_segments(documents: Sequence[DocumentFile], settings: DocumentSettings) -> None:
    """Prints how many segments and words of each document would be translated.

    Raises:
        DataError: A document cannot be read.
    """
    from transformer.pipelines.translation.documents import count_words

    options, totals = settings.options(), [0, 0, 0]
    for file, document in _read(documents):
        selected = [segment for segment in document.segments if options.selects(segment)]
        counts = [len(selected), sum(map(count_words, selected)), len(document.segments) - len(selected)]
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        _print_counts(str(file.path), counts)
        if document.note:
            say(f"note: {file.path}: {document.note}")
    if len(documents) > 1:
        _print_counts(counted(len(documents), "document"), totals)


def _print_counts(name: str, counts: Sequence[int]) -> None:
    segments, words = counted(counts[0], "segment"), counted(counts[1], "word")
    typer.echo(f"{name}: {segments} to translate ({words}), {counts[2]:,} to keep")


def _read(documents: Sequence[DocumentFile]) -> "Iterator[tuple[DocumentFile, Document]]":
    from transformer.documents.formats import read_document

    for file in documents:
        yield file, read_document(file.path, file.form)


def translate_documents(
    translator: "Translator",
    documents: Sequence[DocumentFile],
    settings: DocumentSettings,
    min_confidence: float | None,
    notes: Notes,
    *,
    verbose: bool,
) -> None:
    """Translates documents and prints what became of their segments.

    In a folder, a document that cannot be translated is named, and the others are translated.

    Args:
        translator: Translator of the documents.
        documents: Documents.
        settings: Options of the command line.
        min_confidence: Confidence below which a translation is unsure; None for the threshold of the model.
        notes: Collector of the notes.
        verbose: Whether all problems are named.

    Raises:
        DataError: A document cannot be translated.
        OutputError: A document, or the report, cannot be written.
    """
    from transformer.pipelines.translation.documents import DocumentReport, line_translator

    options, total, failures = settings.options(min_confidence), DocumentReport(), 0
    languages = translator.config.source_language, translator.config.target_language
    n_lines = _count_lines(documents, options, languages)
    with open_report(settings.report) as add, progress_bar_beside(documents[0].output, "lines", n_lines) as advance:
        translate = line_translator(translator, advance)
        for file in documents:
            try:
                report = translate_document(translator, file, options, translate)
            except DataError as error:
                if len(documents) == 1:
                    raise
                notes.say(f"left out: {error}")
                failures += 1
                continue
            add(report.problems)
            total.add(report)
            if len(documents) > 1:
                notes.say(f"{file.path}: {report}")
    report_total(total, notes, n_documents=len(documents), verbose=verbose)
    if failures:
        raise DataError(f"left out {failures:,} of {counted(len(documents), 'document')}; see the notes above")


def report_total(total: "DocumentReport", notes: Notes, *, n_documents: int, verbose: bool) -> None:
    """Prints what became of the segments of all documents.

    Args:
        total: Sum of the reports.
        notes: Collector of the notes.
        n_documents: Number of documents.
        verbose: Whether all problems are named.
    """
    for note in total.notes:
        notes.say(note)
    shown = len(total.problems) if verbose else MAX_SHOWN
    for problem in total.problems[:shown]:
        notes.say(f"{problem.place}: {problem}")
    if (n_more := total.unsure + total.refused - shown) > 0:
        notes.say(f"{counted(n_more, 'more segment')}, unsure or left untranslated (--report FILE.tsv lists all)")
    documents = f"{counted(total.documents, 'document')}, " if n_documents > 1 else ""
    notes.say(f"{documents}{total}")


def translate_document(
    translator: "Translator",
    file: DocumentFile,
    options: "DocumentOptions",
    translate: "Callable[[Sequence[str]], Sequence[Translation]]",
) -> "DocumentReport":
    """Translates a document and returns what became of its segments.

    Args:
        translator: Translator of the document.
        file: The document.
        options: Which segments are translated, and how they are marked.
        translate: Function that translates lines.

    Raises:
        DataError: The document cannot be translated.
        OutputError: The document cannot be written.
    """
    from transformer.pipelines.translation.documents import translate_file, translated_content

    if file.output is None:
        content, report = translated_content(translator, file.path, file.form, options, translate)
        with open_output(None) as sink:
            sink.write(content)
        return report
    try:
        file.output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(file.output.parent, error.strerror or "it cannot be made", "choose another folder") from error
    return translate_file(translator, file.path, file.output, file.form, options, translate)


def _count_lines(documents: Sequence[DocumentFile], options: "DocumentOptions", languages: tuple[str, str]) -> int:
    """Returns the number of lines to translate; a document that cannot be read has none."""
    from transformer.documents.formats import read_document
    from transformer.pipelines.translation.documents import pieces_of

    total = 0
    for file in documents:
        try:
            document = read_document(file.path, file.form).in_languages(*languages)
        except DataError:
            continue
        total += sum(len(pieces_of(segment)) for segment in document.segments if options.selects(segment))
    return total
