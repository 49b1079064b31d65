"""`transformer backtranslate`: makes training pairs from text in the language that a model is to write."""

import io
import json
import os
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer.cli.chunks import split_into_chunks, translate_chunks
from transformer.cli.files import check_files
from transformer.cli.progress import progress_bar
from transformer.cli.search import takes_loading, takes_search
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice
from transformer.cli.verbosity import say, takes_verbosity
from transformer.data.config import file_format
from transformer.errors import ConfigError, DataError
from transformer.options.search import Search
from transformer.storage.atomic import OutputFile, replace_text

if TYPE_CHECKING:
    from transformer.cli.search import Loading

UNFINISHED, FACTS = ".part", ".part.json"
"""Ends of the names of the pairs so far, and of what made them, until all are there."""


@takes_verbosity
@takes_loading
@takes_search
def backtranslate(
    model: ModelArgument,
    text: Annotated[
        Path, typer.Argument(metavar="TEXT", help="text in the language that the model to be trained will write")
    ],
    output_path: Annotated[
        Path, typer.Option("--output", help="file of the pairs: .tsv, translation and text in columns")
    ],
    tag: Annotated[
        str,
        typer.Option(help="word in front of each translation, which tells the model where it comes from; '' for none"),
    ] = "<BT>",
    invalid_utf8: InvalidOption = "error",
    *,
    loading: "Loading",
    search: Search,
) -> None:
    """Translate text back into the source language, as further training pairs for the other direction.

    MODEL translates from the language of TEXT. Each line becomes a pair, its translation being the source. The same
    command continues where an earlier one was stopped. To train on the file, name it in data.pairs.

    Example: transformer backtranslate de-en news.de --output back.tsv --sample --temperature 0.8
    """
    invalid = invalid_choice(invalid_utf8)
    if file_format(str(output_path)) != ".tsv" or output_path.suffix != ".tsv":
        raise ConfigError(f"{output_path} does not end in .tsv; rename it")
    if tag.split() != [tag] * bool(tag):
        raise ConfigError(f"--tag {tag!r} is not a word without spaces; choose another")
    check_files([text], [output_path])
    from transformer.data.fingerprint import file_checksum
    from transformer.text.lines import read_lines

    pairs, facts_file = (output_path.with_name(output_path.name + end) for end in (UNFINISHED, FACTS))
    facts = {
        "model": str(model), "text": file_checksum(text), "tag": tag, "options": repr(sorted(loading.options.items())),
        "search": repr(_with_seed(search, 0)), "seed": search.sampling.seed if search.sampling else 0,
    }  # fmt: skip
    n_done = 0
    if pairs.exists():
        facts, n_done = _continued(facts, pairs, facts_file)
        search = _with_seed(search, facts["seed"])
    lines = islice(read_lines(text, invalid=invalid, overlong="cut"), n_done, None)
    with ExitStack() as stack:
        translator = loading.translator(model, search, source_language=None, target_language=None)
        stack.callback(translator.close)
        replace_text(facts_file, json.dumps(facts))
        opened = OutputFile(pairs, os.O_WRONLY | os.O_CREAT | os.O_APPEND, pairs)
        sink = stack.enter_context(io.BufferedWriter(opened))
        done = stack.enter_context(progress_bar("lines"))
        chunks = ((chunk, None) for chunk in split_into_chunks(lines))
        for chunk, translations in translate_chunks(translator, chunks, done, n_done):
            rows = [_row(line, translation.text, tag) for line, translation in zip(chunk, translations, strict=True)]
            sink.write("".join(rows).encode())
            sink.flush()
    pairs.replace(output_path)
    facts_file.unlink()


def _row(line: str, translation: str, tag: str) -> str:
    """Returns a row of the table; an empty line has no translation, and training drops the pair."""
    source = f"{tag} {translation}".strip() if translation.strip() else ""
    return "\t".join(side.replace("\t", " ") for side in (source, line)) + "\n"


def _with_seed(search: Search, seed: int) -> Search:
    """Returns the search with another seed of its samples."""
    return replace(search, sampling=replace(search.sampling, seed=seed)) if search.sampling else search


def _continued(facts: dict[str, Any], pairs: Path, facts_file: Path) -> tuple[dict[str, Any], int]:
    """Returns what made the pairs that an earlier call of the same command wrote, and their number.

    The seed may differ, since each call chooses another one unless it is given. A last row that was cut is removed.

    Raises:
        DataError: The file belongs to another command.
    """
    earlier = dict[str, Any]()
    with suppress(OSError, ValueError, TypeError):  # missing or damaged: then nothing tells what made the pairs
        earlier = dict(json.loads(facts_file.read_text(encoding="utf-8")))
    if changed := [name for name, value in facts.items() if name != "seed" and earlier.get(name) != value]:
        raise DataError(f"{pairs} was written with another {' and '.join(changed)}; remove it to start anew")
    n_done = size = 0
    with pairs.open("rb+") as file:
        for row in file:
            if row.endswith(b"\n"):
                n_done, size = n_done + 1, size + len(row)
        file.truncate(size)
    say(f"continues behind line {n_done:,}")
    return earlier, n_done
