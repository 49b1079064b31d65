"""`transformer translate`: translates text line by line."""

import io
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from select import select
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from transformer.cli.formats import Format, shown_as
from transformer.cli.lexicon import takes_terminology
from transformer.cli.progress import counted
from transformer.cli.search import takes_loading, takes_search
from transformer.errors import ConfigError, DataError, TransformerError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from transformer.cli.lexicon import TerminologyOptions
    from transformer.cli.search import Loading
    from transformer.decoding import Search
    from transformer.pipelines.translation.translator import Translation, Translator
    from transformer.text.lines import Invalid

    Note = Callable[[int, Translator, Translation], None]

ModelArgument = Annotated[Path, typer.Argument(help="model folder, or run folder (its best model)")]


InvalidOption = Annotated[str, typer.Option("--invalid-utf8", help="bytes that are not UTF-8: 'error' or 'replace'")]
CHUNK_LINES, READ_BYTES = 1024, 1 << 16
BOUND_BEAM = 8
"""Default beam size for translations with required phrases."""


@takes_terminology
@takes_loading
@takes_search
def translate(
    model: ModelArgument,
    input_path: Annotated[
        Path | None, typer.Option("--input", help="text file, plain or .gz; standard input if not given")
    ] = None,
    output_path: Annotated[
        Path | None, typer.Option("--output", help="file to write; standard output if not given")
    ] = None,
    invalid_utf8: InvalidOption = "error",
    n_best: Annotated[
        int | None,
        typer.Option(min=1, help="number of translations per line, written as `line ||| translation ||| score`"),
    ] = None,
    output_format: Annotated[
        Format, typer.Option("--format", help="jsonl: one object per line, with scores and tokens")
    ] = "text",
    prefix: Annotated[
        Path | None, typer.Option(help="file with the required beginning of each translation; lines may be empty")
    ] = None,
    alignment: Annotated[
        Path | None, typer.Option(help="file for word alignments (source-target), e.g. 0-0 1-2")
    ] = None,
    attention: Annotated[
        Path | None, typer.Option(help=".npz file for the cross-attention of all layers and heads")
    ] = None,
    *,
    loading: "Loading",
    search: "Search",
    bound: "TerminologyOptions",
) -> None:
    """Translate line by line. An empty line stays empty; n lines in are n lines out, or more with --n-best.

    A line that is too long for the model is split at sentence ends; where that is not enough, a note on standard
    error names the line. Standard input is translated as it comes.

    Example: echo "A man sleeps." | transformer translate runs/first
    """
    invalid = invalid_choice(invalid_utf8)
    refuse_same([input_path, prefix, loading.shortlist, *bound.files], [output_path, alignment, attention])

    from transformer.pipelines.translation.terminology import TerminologyCounts
    from transformer.runtime.allocator import freeze_gc, trim_heap

    if bound.terminology.requires_phrases and search.beam == 1:
        search = replace(search, beam=BOUND_BEAM)
    if n_best is not None:
        search = replace(search, n_best=n_best)
    translator = loading.translator(model, search, terminology=bound.terminology)
    freeze_gc()
    shown = shown_as(output_format, all_of_them=n_best is not None)
    number, tally = 0, TerminologyCounts()
    with ExitStack() as files:
        files.callback(translator.close)  # with what it is at, where nobody wants the rest
        sink = files.enter_context(written_to(output_path))
        notes = _notes(files, alignment, attention, loading.task)
        print(translator.description, file=sys.stderr)
        done = files.enter_context(_progress(input_path, output_path))
        for chunk, translations in _translated(translator, _given(input_path, prefix, invalid), done):
            for source, translation in zip(chunk, translations, strict=True):
                number += 1
                sink.write(shown(number, source, translation).encode() + b"\n")
                print_flags(number, translation.flags)
                tally.add(translator.terminology, source, translation.text)
                for note in notes:
                    note(number, translator, translation)
            sink.flush()
            if len(chunk) == CHUNK_LINES:  # of a long file, and not after every line that is typed
                trim_heap()
    if bound.terminology.glossary or bound.terminology.protected:
        print(tally, file=sys.stderr)


def _translated(
    translator: "Translator", chunks: Iterator[tuple[list[str], list[str] | None]], done: Callable[[int], None] | None
) -> Iterator[tuple[Sequence[str], "list[Translation]"]]:
    """Each chunk with its translations: processes search for the next one while one is put together and written.

    An empty chunk says that nothing more is there yet: the one before is finished. What stands before an error is given
    before the error is raised.
    """
    number, begun, problem = 0, None, None
    while problem is None:
        following = None
        try:
            if (given := next(chunks, None)) is not None:
                following = translator.begin(*given, number)
        except Exception as error:
            problem = error
        if begun is not None and begun.lines:
            yield begun.lines, translator.finish(begun, done)
        if following is None:
            break
        number += len(following.lines)
        begun = following
    if problem is not None:
        raise problem


def _given(source: Path | None, path: Path | None, invalid: "Invalid") -> Iterator[tuple[list[str], list[str] | None]]:
    """Each chunk of a source with what its translations begin with.

    Raises:
        DataError: the file has more or fewer lines than the input.
    """
    from transformer.text.lines import read_lines

    chunks = _chunks(source, invalid)
    if path is None:
        yield from ((chunk, None) for chunk in chunks)
        return
    prefixes, number = read_lines(path, invalid=invalid), 0
    for chunk in chunks:
        begins = list(islice(prefixes, len(chunk)))
        if len(begins) < len(chunk):
            raise DataError(f"{path} has {number + len(begins):,} lines, the input more; they go line by line")
        yield chunk, begins
        number += len(chunk)
    if next(prefixes, None) is not None:
        raise DataError(f"{path} has more than the {number:,} lines of the input; they go line by line")


def _notes(files: ExitStack, alignment: Path | None, attention: Path | None, task: str) -> "list[Note]":
    """What is written of each translation beside it.

    Raises:
        ConfigError: an alignment of words that a task moves.
    """
    if alignment is not None and task:
        raise ConfigError("--alignment counts the words of a line, which --task moves; leave one of them out")
    notes: list[Note] = []
    if alignment is None and attention is None:
        return notes

    from transformer.pipelines.translation.alignment_output import AttentionFile, word_alignment

    if alignment is not None:
        sink = files.enter_context(written_to(alignment))

        def note(number: int, translator: "Translator", translation: "Translation") -> None:
            links = " ".join(f"{source}-{target}" for source, target in word_alignment(translator, translation))
            sink.write(f"{links}\n".encode())

        notes.append(note)
    if attention is not None:
        notes.append(files.enter_context(AttentionFile(files.enter_context(written_to(attention)))).add)
    return notes


def refuse_same(inputs: Sequence[Path | None], outputs: Sequence[Path | None]) -> None:
    """Refuses to write over what is read, or two things into one file.

    Args:
        inputs: files; None stands for standard input.
        outputs: files; None is passed over.

    Raises:
        DataError: a file is named twice, by whatever names.
    """
    read = {_identity(path) for path in inputs}
    written: set[object] = set()
    for path in outputs:
        if path is not None and _identity(path) in read:
            raise DataError(f"{path} is both input and output; choose another output file")
        if path is not None and _identity(path) in written:
            raise DataError(f"{path} is given for two outputs; choose another file")
        written |= {_identity(path)} if path is not None else set()


def _identity(path: Path | None) -> object:
    """What is equal for two names of one plain file; other files (pipes, /dev/null) are equal to none."""
    try:
        found = path.stat() if path else os.fstat(sys.stdin.fileno())
    except (OSError, ValueError):  # not there yet, or standard input is none
        return path.resolve() if path else object()
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else object()


def invalid_choice(value: str) -> "Invalid":
    """The checked value of --invalid-utf8.

    Raises:
        ConfigError: it is none.
    """
    if value == "error" or value == "replace":
        return value
    raise ConfigError(f"invalid_utf8={value!r} is unknown; choose 'error' or 'replace'")


def print_flags(number: int, flags: tuple[str, ...]) -> None:
    """Names a line on standard error with what a reader should know of it."""
    for flag in flags:
        print(f"line {number}: {flag}", file=sys.stderr)


def _chunks(path: Path | None, invalid: "Invalid") -> Iterator[list[str]]:
    """Lines by the thousand from a file; from standard input, as many as have come, or none."""
    from transformer.text.lines import LineCounts, decode_lines, read_lines

    if path is not None:
        yield from _by_the_thousand(read_lines(path, invalid=invalid))
        return
    counts = LineCounts()
    for raw in _available_lines(sys.stdin.fileno()):
        if raw:
            yield from _by_the_thousand(decode_lines(raw, "standard input", counts, invalid))
        else:
            yield []


def _by_the_thousand(lines: Iterator[str]) -> Iterator[list[str]]:
    """Lines before an error come before it is raised."""
    chunk: list[str] = []
    problem: TransformerError | None = None
    try:
        for line in lines:
            chunk.append(line)
            if len(chunk) == CHUNK_LINES:
                yield chunk
                chunk = []
    except TransformerError as error:
        problem = error
    if chunk:
        yield chunk
    if problem is not None:
        raise problem


def _available_lines(descriptor: int) -> Iterator[list[bytes]]:
    """Whole lines as soon as they arrive, so that a program may write a line and wait for its translation.

    Where nothing more is there yet, no lines.
    """
    rest = b""
    while data := os.read(descriptor, READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield [line + b"\n" for line in lines]
        if not _has_more(descriptor):
            yield []
    if rest:
        yield [rest]


def _has_more(descriptor: int) -> bool:
    """Whether something can be read without waiting, where that can be told."""
    with suppress(OSError):
        return bool(select([descriptor], [], [], 0)[0])
    return False


class LazyTruncateFile(io.FileIO):
    """A file to write, which keeps what it held until something is written."""

    def __init__(self, path: Path) -> None:
        self._made, self._is_begun = None if path.exists() else Path(os.path.realpath(path)), False
        super().__init__(path, "w", opener=lambda name, flags: os.open(name, flags & ~os.O_TRUNC, 0o666))

    def begin(self) -> None:
        """Empties it, once; what is no plain file cannot be emptied."""
        if not self._is_begun and stat.S_ISREG(os.fstat(self.fileno()).st_mode):
            self.truncate(0)
        self._is_begun = True

    def write(self, data: "ReadableBuffer", /) -> int | None:
        """As of any file.

        Raises:
            DataError: there is no room for it.
        """
        self.begin()
        try:
            return super().write(data)
        except OSError as error:
            raise DataError(f"{os.fsdecode(self.name)}: {error.strerror}; choose another place for it") from error

    def leave_as_it_was(self) -> None:
        """Removes it if it is new and nothing was written."""
        if self._made and not self._is_begun:
            self._made.unlink(missing_ok=True)


@contextmanager
def written_to(path: Path | None) -> Generator[BinaryIO]:
    """The file, or standard output. A reader of ours that has had enough (`| head`) is no error.

    What fails before it writes leaves a file as it was.
    """
    if path is None:
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except BrokenPipeError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit would fail again
            raise typer.Exit(0) from error
        return
    if path.suffix in (".gz", ".zst"):
        raise DataError(f"{path}: what is written is not compressed; leave out {path.suffix}")
    try:
        late = LazyTruncateFile(path)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; choose another output file") from error
    try:
        with io.BufferedWriter(late) as file:
            yield file
            late.begin()  # though nothing may have been written
    finally:
        late.leave_as_it_was()


def _progress(input_path: Path | None, output_path: Path | None) -> AbstractContextManager[Callable[[int], None]]:
    """Shows how many lines are done, of how many, where that does not mix with the translations."""
    if output_path is None and sys.stdout.isatty():
        return nullcontext(lambda more: None)
    return counted("lines", _lines_of(input_path) if sys.stderr.isatty() else None)


def _lines_of(path: Path | None) -> int | None:
    """How many lines a file has, where that is quickly told."""
    if path is None or not path.is_file() or path.suffix in (".gz", ".zst"):
        return None
    with suppress(OSError), path.open("rb") as file:  # what cannot be read is refused where it is read
        return sum(block.count(b"\n") for block in iter(lambda: file.read(READ_BYTES), b""))
    return None
