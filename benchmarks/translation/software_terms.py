"""Translates segments of PO and Markdown files with software terms by one model or several, to compare by reading.

For each term, the first segment of 4 to 14 words that has it is taken, each document at most twice, until there are
enough. The same documents give the same segments, so that two models, or a model before and after its training, can be
compared. The table is written as a TSV file, which docs/experiments/documents.md shows.

python benchmarks/translation/software_terms.py FOLDER... --models 1.1=OLD_MODEL 2.0=en-de --output TSV
"""

import argparse
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import transformer
from transformer.documents.formats import find_format, read_document
from transformer.errors import DataError

TERMS = (
    "branch", "commit", "thread", "cache", "driver", "string", "key", "shell", "host", "patch", "log", "port", "query",
    "request", "token", "library", "package", "field", "form", "widget", "template", "session", "password", "directory",
    "default", "argument", "release", "build", "run", "load",
)  # fmt: skip
FORMATS = ("po", "md")
HEAD_BYTES = 1 << 12
MIN_WORDS, MAX_WORDS = 4, 14
PER_DOCUMENT = 2


def find_segments(paths: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yields the documents in files and folders with the text of each segment; lines of a segment are joined."""
    files = sorted({file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))})
    for file in files:
        if not file.is_file():
            continue
        with file.open("rb") as stream:
            form = find_format(file, stream.read(HEAD_BYTES))
        if form is None or form.name not in FORMATS:
            continue
        try:
            document = read_document(file, form)
        except DataError:
            continue
        for segment in document.segments:
            if "\n" not in segment.text:
                yield file, segment.text


def choose(paths: Sequence[Path], n: int) -> list[tuple[str, str]]:
    """Returns terms, each with a segment that has it."""
    chosen: dict[str, str] = {}
    n_of: Counter[Path] = Counter()
    for file, text in find_segments(paths):
        if n_of[file] >= PER_DOCUMENT or not MIN_WORDS <= len(text.split()) <= MAX_WORDS:
            continue
        term = next((term for term in TERMS if term not in chosen and re.search(rf"\b{term}s?\b", text, re.I)), "")
        if term and text not in chosen.values():
            chosen[term] = text
            n_of[file] += 1
        if len(chosen) == n:
            break
    return list(chosen.items())


def main() -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--models", nargs="+", default=["en-de"], help="NAME=MODEL for the heading NAME")
    parser.add_argument("--segments", type=int, default=10)
    parser.add_argument("--output", type=Path, help="TSV file; default: standard output")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = choose(arguments.paths, arguments.segments)
    heads, columns = ["term", "text"], [[term for term, _ in chosen], [text for _, text in chosen]]
    for model in arguments.models:
        name, separator, path = model.partition("=")
        translator = transformer.load(path if separator else model, workers=1)
        heads.append(name)
        columns.append([translation.text for translation in translator.translations(columns[1])])
        translator.close()
    rows = [heads, *zip(*columns, strict=True)]
    table = "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)
    if arguments.output:
        arguments.output.write_text(table, encoding="utf-8")
    else:
        print(table, end="")


if __name__ == "__main__":
    main()
