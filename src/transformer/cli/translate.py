"""`transformer translate`: translates text line by line."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from select import select
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from transformer.cli.arguments import (
    InvalidOption,
    JsonOption,
    TextsArgument,
    argument_lines,
    choose_format,
    invalid_choice,
)
from transformer.cli.chunks import CHUNK_LINES, split_into_chunks, translate_chunks
from transformer.cli.completion import complete_model
from transformer.cli.document_settings import DocumentSettings, takes_documents
from transformer.cli.documents import (
    check_documents,
    count_segments,
    find_documents,
    refuse_document,
    refuse_kind,
    translate_documents,
)
from transformer.cli.fields import option
from transformer.cli.files import check_files
from transformer.cli.formats import Format, formatter
from transformer.cli.language_check import LanguageCheck, check_language
from transformer.cli.notes import collect_notes
from transformer.cli.outputs import open_output
from transformer.cli.parquet_shards import TableColumns, takes_translation_columns
from transformer.cli.progress import count_lines, progress_bar
from transformer.cli.ray_engine import RayOptions, RayTranslation, takes_ray
from transformer.cli.search import SourceLanguageOption, TargetLanguageOption, languages_of, takes_loading, takes_search
from transformer.cli.sharding import ShardingOptions, takes_sharding
from transformer.cli.terminology import takes_terminology
from transformer.cli.translate_shards import OutputFormat, ShardedTranslation
from transformer.cli.verbosity import QuietOption, VerboseOption, prompt_on_terminal, takes_verbosity
from transformer.errors import ConfigError, DataError, counted
from transformer.options.search import Search
from transformer.options.translation import MAX_INPUT_CHARACTERS

if TYPE_CHECKING:
    from transformer.cli.formats import Formatter
    from transformer.cli.notes import Notes
    from transformer.cli.search import Loading
    from transformer.cli.terminology import TerminologyOptions
    from transformer.pipelines.translation.config import Languages
    from transformer.pipelines.translation.results import Translation
    from transformer.pipelines.translation.translator import Translator
    from transformer.text.lines import Invalid

    SideOutput = Callable[[int, Translator, Translation], None]

ModelArgument = Annotated[
    Path,
    typer.Argument(help="model folder, run folder (its best model), or name of a model", autocompletion=complete_model),
]


READ_BYTES = 1 << 16

InputOption = Annotated[
    Path | None, typer.Option("--input", help="text file, plain or compressed; standard input if not given")
]
AsOption = Annotated[
    str,
    typer.Option(
        "--as",
        help="format of the file: auto (default; by name and content), text (line by line, any file), or that of a "
        "document, which is translated in place: po, md, json, srt, vtt, html, xliff, tmx, android, xml, "
        "docx, odt, pptx, properties, strings, csv",
    ),
]
OutputOption = Annotated[Path | None, typer.Option("--output", help="file to write; standard output if not given")]
AlignmentOption = Annotated[Path | None, typer.Option(help="file for word alignments (source-target), e.g. 0-0 1-2")]
AttentionOption = Annotated[Path | None, typer.Option(help=".npz file for the cross-attention of all layers and heads")]
NBestOption = Annotated[int | None, option(Search, "n_best")]
FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="text (default; with --n-best `line ||| translation ||| ranking score`); jsonl: an object per line, with "
        "scores and tokens; moses: n-best list of Moses",
    ),
]
MinConfidenceOption = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="mark translations of a lower confidence (expected chrF / 100) by `[unsure] `"),
]
PrefixOption = Annotated[
    Path | None, typer.Option(help="file with the required beginning of each translation; lines may be empty")
]


@takes_verbosity
@takes_documents
@takes_terminology
@takes_loading
@takes_search
@takes_sharding
@takes_translation_columns
@takes_ray
def translate(
    model: ModelArgument,
    texts: TextsArgument = None,
    input_path: InputOption = None,
    output_path: OutputOption = None,
    invalid_utf8: InvalidOption = "error",
    n_best: NBestOption = None,
    output_format: FormatOption = None,
    as_json: JsonOption = False,
    as_kind: AsOption = "auto",
    min_confidence: MinConfidenceOption = None,
    prefix: PrefixOption = None,
    alignment: AlignmentOption = None,
    attention: AttentionOption = None,
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    *,
    loading: "Loading",
    search: Search,
    terms: "TerminologyOptions",
    sharding: ShardingOptions,
    columns: TableColumns,
    ray_options: RayOptions,
    documents: DocumentSettings,
) -> None:
    """Translate line by line. An empty line stays empty; n lines in are n lines out, or more with --n-best.

    A line with more sentences than the lines that the model was trained on is split at sentence ends, and a sentence
    that is too long is cut. Notes for readers go to standard error; they end with the last line.
    Standard input is translated as it arrives. A document (PO, Markdown, HTML, DOCX and others, see --as) is translated
    in place, and so is a folder of them.

    Example: transformer translate runs/first "A man sleeps." "Two dogs run."
    """
    invalid, lines = invalid_choice(invalid_utf8), argument_lines(texts, input_path)
    chosen = choose_format(output_format, "text", "jsonl", as_json=as_json)
    shortlist, task = loading.options.get("shortlist"), loading.options.get("task", "")
    seed = search.sampling and search.sampling.seed
    format_line = formatter(chosen, all_alternatives=n_best is not None, min_confidence=min_confidence, seed=seed)
    is_dry = documents.dry_run
    own_files = {"--prefix": prefix, "--alignment": alignment, "--attention": attention}
    line_options: dict[str, object] = {**own_files, "--n-best": n_best, "--format": output_format or as_json}
    line_options["--invalid-utf8"] = invalid == "replace"
    languages = languages_of(source_language, target_language)
    if ray_options:
        documents.refuse()
        others = {"a text": texts, "--shards": sharding, "--as": as_kind != "auto", "--min-confidence": min_confidence}
        paths = ray_options.check(input_path, output_path, {**others, **line_options})
        job = RayTranslation(model, search, loading, terms.terminology, languages)
        job.run(ray_options, *paths, columns)
        return
    as_kind = columns.kind(input_path, as_kind, in_shards=bool(sharding))
    as_document = find_documents(input_path, output_path, as_kind, are_counted=is_dry) if lines is None else []
    as_document = documents.chosen(as_document) if as_document else []
    if as_document:
        line_options["--shards"] = sharding and input_path and input_path.is_file()
        check_documents(as_document, [shortlist, *terms.files], line_options, documents.report)
    else:
        documents.refuse()
        outputs = [None if sharding else output_path, alignment, attention]
        check_files([input_path, prefix, shortlist, *terms.files], outputs)
        if input_path is not None and as_kind != "text":
            refuse_document(input_path)
    if is_dry:
        count_segments(as_document, documents)
        return
    search = search if n_best is None else replace(search, n_best=n_best)
    if sharding:
        output = OutputFormat(chosen, n_best, min_confidence)
        job = ShardedTranslation(model, search, loading, terms.terminology, languages, output, invalid)
        if as_document and input_path and output_path:
            job.run_documents(sharding, as_document, (input_path, output_path), documents, verbose=verbose, quiet=quiet)
            return
        (path,), folder = sharding.check([input_path], "--input FILE", output_path, own_files)
        job.run(sharding, path, folder, columns, MAX_INPUT_CHARACTERS)
        return
    with ExitStack() as files:
        notes = files.enter_context(collect_notes(verbose=verbose, quiet=quiet))
        translator = _load(files, model, loading, search, terms, languages, min_confidence)
        if as_document:
            translate_documents(translator, as_document, documents, min_confidence, notes, verbose=verbose)
            return
        sink = files.enter_context(open_output(output_path))
        side_outputs = _side_outputs(files, alignment, attention, task)
        notes.say(translator.description)
        done = None if quiet else files.enter_context(_progress(input_path, output_path))
        if lines is None and input_path is None:
            prompt_on_terminal("type a line to translate; Ctrl-D ends")
        chunks = (
            _chunks(input_path, invalid, takes_any=as_kind == "text")
            if lines is None
            else split_into_chunks(iter(lines))
        )
        translated = translate_chunks(translator, _with_prefixes(chunks, prefix, invalid), done)
        checked = () if quiet or task else translator.config.source_languages
        check = files.enter_context(check_language(checked, notes))
        _write_translations(translator, translated, sink, format_line, side_outputs, notes, check)


def _load(
    files: ExitStack,
    model: Path,
    loading: "Loading",
    search: Search,
    terms: "TerminologyOptions",
    languages: "Languages",
    min_confidence: float | None,
) -> "Translator":
    """Loads the translator, which is closed with the other files.

    Raises:
        ConfigError: A lowest confidence is asked for, but the model has none.
    """
    from transformer.runtime.allocator import freeze_gc

    translator = loading.translator(model, search, terminology=terms.terminology, **languages)
    if min_confidence is not None and translator.confidence_model(translator.search) is None:
        raise ConfigError(
            f"--min-confidence needs a confidence, which {model} has not for this search; see transformer calibrate"
        )
    freeze_gc()
    files.callback(translator.close)  # also ends unfinished work if the output is no longer read
    return translator


def _write_translations(
    translator: "Translator",
    translated: Iterable[tuple[Sequence[str], "Sequence[Translation]"]],
    sink: BinaryIO,
    format_line: "Formatter",
    side_outputs: "Sequence[SideOutput]",
    notes: "Notes",
    check: LanguageCheck,
) -> None:
    """Writes translations as they come, with their notes, and counts at the end how often terms were used.

    Args:
        translator: Translator of the lines.
        translated: Chunks of lines, and their translations.
        sink: Output of the translations.
        format_line: Function that formats a translation.
        side_outputs: Functions that write alignments or attention.
        notes: Collector of the notes on lines.
        check: Check of the language of the lines.
    """
    from transformer.pipelines.translation.terminology import TerminologyCounts
    from transformer.runtime.allocator import trim_heap

    number, tally = 0, TerminologyCounts()
    for chunk, translations in translated:
        check.add(number + 1, chunk)
        for source, translation in zip(chunk, translations, strict=True):
            number += 1
            sink.write(format_line(number, source, translation).encode() + b"\n")
            notes.add(number, (*translation.flags, *_cut_flags(source)), translation.unseen)
            if translation.is_copied:
                notes.add_copied()
            tally.add(translator.terminology, source, translation.text, translation.flags)
            for write in side_outputs:
                write(number, translator, translation)
        sink.flush()
        if len(chunk) == CHUNK_LINES:  # for long files only, not after each typed line
            trim_heap()
    if translator.terminology.glossary or translator.terminology.protected:
        notes.say(str(tally))


def _cut_flags(line: str) -> tuple[str, ...]:
    """Returns a flag if only the beginning of a line was read."""
    is_cut = len(line) > MAX_INPUT_CHARACTERS
    return (f"longer than {MAX_INPUT_CHARACTERS:,} characters; only so many were read",) if is_cut else ()


def _with_prefixes(
    chunks: Iterator[list[str]], path: Path | None, invalid: "Invalid"
) -> Iterator[tuple[list[str], list[str] | None]]:
    """Yields each chunk of the input with the required prefixes of its translations.

    Raises:
        DataError: The file of prefixes has more or fewer lines than the input.
    """
    from transformer.text.lines import read_lines

    if path is None:
        yield from ((chunk, None) for chunk in chunks)
        return
    prefixes, number = read_lines(path, invalid=invalid), 0
    for chunk in chunks:
        chunk_prefixes = list(islice(prefixes, len(chunk)))
        if len(chunk_prefixes) < len(chunk):
            raise DataError(
                f"{path} has {counted(number + len(chunk_prefixes), 'line')}, but the input has more; "
                "give one line per line of the input"
            )
        yield chunk, chunk_prefixes
        number += len(chunk)
    if next(prefixes, None) is not None:
        raise DataError(
            f"{path} has more lines than the input, which has {number:,}; give one line per line of the input"
        )


def _side_outputs(files: ExitStack, alignment: Path | None, attention: Path | None, task: str) -> "list[SideOutput]":
    """Opens the files for alignments and attention, and returns the functions that write them.

    Raises:
        ConfigError: An alignment is requested together with a task, which shifts the words.
    """
    if alignment is not None and task:
        raise ConfigError("--alignment refers to word positions, which --task shifts; leave out one of them")
    side_outputs: list[SideOutput] = []
    if alignment is None and attention is None:
        return side_outputs

    from transformer.pipelines.translation.alignment_output import AttentionFile, word_alignment

    if alignment is not None:
        sink = files.enter_context(open_output(alignment))

        def write_links(number: int, translator: "Translator", translation: "Translation") -> None:
            links = " ".join(f"{source}-{target}" for source, target in word_alignment(translator, translation))
            sink.write(f"{links}\n".encode())

        side_outputs.append(write_links)
    if attention is not None:
        side_outputs.append(files.enter_context(AttentionFile(files.enter_context(open_output(attention)))).add)
    return side_outputs


def _chunks(path: Path | None, invalid: "Invalid", *, takes_any: bool) -> Iterator[list[str]]:
    """Yields chunks of lines; from standard input, those that have arrived, or an empty chunk if there are none.

    Raises:
        DataError: Standard input does not begin as plain text, and `takes_any` is False.
    """
    from transformer.text.lines import LineCounts, decode_lines, read_lines

    if path is not None:
        yield from split_into_chunks(read_lines(path, invalid=invalid, overlong="cut", limit=MAX_INPUT_CHARACTERS))
        return
    counts = LineCounts()
    for raw in _available_lines(sys.stdin.fileno()):
        if not counts.lines and not takes_any:
            refuse_kind(b"".join(raw), "standard input")
        if raw:
            lines = decode_lines(
                raw, "standard input", counts, invalid, overlong="cut", limit=MAX_INPUT_CHARACTERS
            )  # fmt: skip
            yield from split_into_chunks(lines)
        else:
            yield []


def _available_lines(descriptor: int) -> Iterator[list[bytes]]:
    """Yields whole lines as soon as they arrive, so that a program can write a line and wait for its translation.

    Yields an empty list whenever no more input has arrived yet.
    """
    from transformer.text.lines import LineBuffer

    line = LineBuffer(MAX_INPUT_CHARACTERS)
    while data := os.read(descriptor, READ_BYTES):
        *ends, rest = data.split(b"\n")
        if ends:
            line.add(ends[0])
            yield [raw + b"\n" for raw in (line.take(), *ends[1:])]
        line.add(rest)
        if not _has_more(descriptor):
            yield []
    if last := line.take():
        yield [last]


def _has_more(descriptor: int) -> bool:
    """Whether input can be read without waiting; False if the system cannot check this descriptor."""
    with suppress(OSError):
        return bool(select([descriptor], [], [], 0)[0])
    return False


def _progress(input_path: Path | None, output_path: Path | None) -> AbstractContextManager[Callable[[int], None]]:
    """Shows the number of translated lines, unless the translations go to the same terminal."""
    if output_path is None and sys.stdout.isatty():
        return nullcontext(lambda more: None)
    return progress_bar("lines", count_lines(input_path) if sys.stderr.isatty() else None)
