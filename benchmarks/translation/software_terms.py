"""Prints segments of documents with software terms, and their translations by one model or several, as a table.

For each term, the first segment of 4 to 14 words that has it is taken, each document at most twice, until there are
enough. The same documents give the same segments, so that two models, or a model before and after its training, can be
compared by reading.

python benchmarks/translation/software_terms.py FILE_OR_FOLDER... --models en-de runs/next --segments 10
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
        if form is None:
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
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--models", nargs="+", default=["en-de"])
    parser.add_argument("--segments", type=int, default=10)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = choose(arguments.paths, arguments.segments)
    columns = [[text for _, text in chosen]]
    for model in arguments.models:
        translator = transformer.load(model, workers=1)
        columns.append([translation.text for translation in translator.translations(columns[0])])
        translator.close()
    print("| term | text | " + " | ".join(arguments.models) + " |")
    print("|---" * (2 + len(arguments.models)) + "|")
    for (term, _), *texts in zip(chosen, *columns, strict=True):
        print(f"| {term} | " + " | ".join(text.replace("|", "\\|") for text in texts) + " |")


if __name__ == "__main__":
    main()
