"""Translates real documents in place, and counts what became of their segments. Nothing is compared with.

Documents are files, or all files of folders, e.g. unpacked wheels and packages; they are taken in turns of their
formats until there are enough segments. The output is read again. A translated segment is kept if it is still a segment
with the same placeholders and tags (in formats that hold translations: if its translation has them), and silent if it
is not. If the output has another number of segments, as a translation may look like a name, the whole output has to
have all placeholders and tags, at least as often. Left segments were not translated and are marked. The goals: none is
silent, and at most 5 % of those with placeholders or tags are left.

With `--timed N`, N documents of each format with at least 100 segments are also translated in turns with their lines
as a text file; the ratio of the processor times, which other programs hardly change, should be at most 1.1. With
`--memory`, the largest document of each format is read and written by a process of its own, whose peak memory is
compared with the size of the file.

An interrupted run continues: documents that OUTPUT has are not translated again. It names them by their path within
the folder that was given.

python benchmarks/translation/documents.py FOLDER... --model en-de --segments 20000 --output results.json
"""

import argparse
import io
import json
import re
import subprocess
import sys
import time
import warnings
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

import transformer
from transformer.documents.document import Document, Segment
from transformer.documents.formats import find_format, format_named
from transformer.errors import DataError
from transformer.pipelines.translation.documents import (
    DocumentOptions,
    DocumentTranslator,
    TranslateLines,
    line_translator,
    pieces_of,
)
from transformer.pipelines.translation.results import EMPTY_ALTERNATIVE, Translation
from transformer.pipelines.translation.translator import Translator
from transformer.runtime.machine import machine
from transformer.storage.atomic import replace_bytes

OPTIONS = DocumentOptions(only_untranslated=False, mark="none")
HEAD_BYTES = 1 << 12
TEXT_ATTRIBUTES = re.compile(rb"""\s(?:title|alt|placeholder|aria-label)=(?:"[^"]*"|'[^']*')""")
EXAMPLES = 3
ROUNDS = 3
MIN_TIMED = 100
"""Number of segments of a document that is timed."""
Found = tuple[Path, str]
"""A document, and the name of its format."""


def find_documents(paths: Sequence[Path], formats: Sequence[str]) -> list[Found]:
    """Returns the documents in files and folders, in turns of their formats, the larger ones first."""
    by_format: defaultdict[str, list[tuple[int, Path]]] = defaultdict(list)
    files = sorted({file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))})
    for file in files:
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as stream:
                form = find_format(file, stream.read(HEAD_BYTES))
            if form is not None and (not formats or form.name in formats):
                by_format[form.name].append((-file.stat().st_size, file))
    queues = [[(path, name) for _, path in sorted(sizes)] for name, sizes in sorted(by_format.items())]
    return [found for turn in zip_longest(*queues) for found in turn if found is not None]


def name_of(path: Path, roots: Sequence[Path]) -> str:
    """Returns the name of a document: its path within the folder that was given."""
    root = next((root for root in roots if path.is_relative_to(root) and path != root), path.parent)
    return path.relative_to(root).as_posix()


def without_texts(markup: bytes) -> bytes:
    """Returns markup without the attributes that are translated, since they are segments of their own."""
    return TEXT_ATTRIBUTES.sub(b"", markup)


def unpacked(content: bytes) -> bytes:
    """Returns the parts of an archive one after another, and any other content as it is."""
    if not content.startswith(b"PK"):
        return content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return b"".join(archive.read(name) for name in archive.namelist())


def lost_codes(segment: Segment, written: Segment | None) -> Counter[bytes]:
    """Returns the codes of a segment that the written one lacks; those at its ends may stand beside it now.

    All of them are returned if the written segment is not known.
    """
    before, now = (
        Counter(without_texts(code.source.encode()) for code in side.source.codes.values())
        if side
        else Counter[bytes]()
        for side in (segment, written)
    )
    return before - now


def judge(document: Document, content: bytes, found: Found, left: Counter[int]) -> Counter[str]:
    """Counts the segments of a translated document by what became of them.

    Args:
        document: The document before.
        content: Its translation.
        found: Path and format.
        left: Number of segments that were left, by line.
    """
    path, name = found
    form, left = format_named(name), Counter(left)
    after = form.parse(content, str(path)).segments
    texts = [without_texts(unpacked(data)) for data in (path.read_bytes(), content)]

    def is_kept(segment: Segment, written: Segment | None) -> bool:
        if written is not None and form.holds_translations:
            return bool(written.target)
        return all(texts[0].count(code) <= texts[1].count(code) for code in lost_codes(segment, written))

    counts: Counter[str] = Counter()
    if len(after) != len(document.segments):  # a translation may look like a name, which is no segment
        counts["other segments"] = abs(len(after) - len(document.segments))
        after = [None] * len(document.segments)
    for segment, written in zip(document.segments, after, strict=True):
        if not OPTIONS.selects(segment):
            continue
        line = document.line_of(segment.position)
        kind = "with codes" if segment.source.codes or segment.source.has_too_many else "without codes"
        if left[line]:
            left[line] -= 1
            outcome = "left"
        else:
            outcome = "kept" if is_kept(segment, written) else "silent"
        counts[f"{outcome}, {kind}"] += 1
    return counts


def translate(found: Found, translate_lines: TranslateLines, languages: tuple[str, str]) -> dict[str, Any]:
    """Translates a document and returns what became of it."""
    path, name = found
    content = path.read_bytes()
    document = format_named(name).parse(content, str(path)).in_languages(*languages)
    written, report = DocumentTranslator(translate_lines, languages, options=OPTIONS)(document, path.name)
    refused = [problem for problem in report.problems if problem.translation is None]
    examples: defaultdict[str, list[str]] = defaultdict(list)
    for problem in refused:
        if len(examples[problem.reason]) < EXAMPLES:
            examples[problem.reason].append(problem.source)
    counts = judge(document, written, found, Counter(problem.line for problem in refused))
    return {
        "format": name,
        "bytes": len(content),
        "segments": report.translated + report.refused,
        "unsure": report.unsure,
        "counts": dict(counts),
        "left": dict(Counter(problem.reason for problem in refused).most_common()),
        "examples": dict(examples),
    }


def compare_times(found: Found, translator: Translator, languages: tuple[str, str]) -> dict[str, float]:
    """Returns the lowest processor times of a document and of its lines as a text file, in seconds."""
    path, name = found
    form, run = format_named(name), DocumentTranslator(line_translator(translator), languages, options=OPTIONS)
    segments = form.parse(path.read_bytes(), str(path)).segments
    lines = [line for segment in segments if OPTIONS.selects(segment) for line in pieces_of(segment)]

    def of_document() -> None:
        run(form.parse(path.read_bytes(), str(path)), str(path))

    def of_lines() -> None:
        line_translator(translator)(lines)

    times: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for kind, work in (("document", of_document), ("lines", of_lines)):
            start = time.process_time()
            work()
            times[kind].append(time.process_time() - start)
    lowest = {kind: round(min(seconds), 3) for kind, seconds in times.items()}
    return {**lowest, "ratio": round(lowest["document"] / lowest["lines"], 3)}


def copied(lines: Sequence[str]) -> list[Translation]:
    """Returns each line as its translation."""
    return [Translation((replace(EMPTY_ALTERNATIVE, text=line),)) for line in lines]


def print_memory(found: Found) -> None:
    """Prints the peak memory of reading and writing a document without a model, in bytes beyond that of the imports."""
    path, name = found
    form = format_named(name)
    import_module(f"transformer.documents.{form.module}")
    before = peak_bytes()
    DocumentTranslator(copied, options=OPTIONS)(form.parse(path.read_bytes(), str(path)), str(path))
    print(peak_bytes() - before)


def peak_bytes() -> int:
    """Returns the peak memory of this process, without that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def measure_memory(found: Found) -> dict[str, float]:
    """Returns the peak memory of a document, measured in a process of its own."""
    path, name = found
    command = [sys.executable, __file__, str(path), "--formats", name, "--print-memory"]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    size = path.stat().st_size
    return {"bytes": size, "peak_bytes": peak, "ratio": round(peak / size, 1)}


def summarize(results: dict[str, Any]) -> dict[str, Any]:
    """Returns the shares over all documents."""
    counts: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for result in results.values():
        counts.update(result.get("counts", {}))
        left.update(result.get("left", {}))
    n_coded = sum(counts[f"{outcome}, with codes"] for outcome in ("kept", "left", "silent"))
    n_segments = n_coded + sum(counts[f"{outcome}, without codes"] for outcome in ("kept", "left", "silent"))
    n_left = counts["left, with codes"] + counts["left, without codes"]
    return {
        "documents": len(results),
        "segments": n_segments,
        "with codes": n_coded,
        "silent": counts["silent, with codes"] + counts["silent, without codes"],
        "left": round(n_left / max(n_segments, 1), 4),
        "left of those with codes": round(counts["left, with codes"] / max(n_coded, 1), 4),
        "unsure": round(sum(result.get("unsure", 0) for result in results.values()) / max(n_segments, 1), 4),
        "reasons": dict(left.most_common(30)),
    }


def documents_of(found: dict[str, Found], done: dict[str, Any], n_segments: int) -> Iterator[str]:
    """Yields the names of documents until the results have enough segments."""
    for name in found:
        if sum(result.get("segments", 0) for result in done.values()) >= n_segments:
            return
        if name not in done:
            yield name


def main() -> None:
    """Translates documents and writes the result after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--segments", type=int, default=20_000)
    parser.add_argument("--formats", nargs="*", default=[], help="names, e.g. po md html; default: all")
    parser.add_argument("--timed", type=int, default=0, help="number of documents of each format to time")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--print-memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    documents = find_documents(arguments.paths, arguments.formats)
    if arguments.print_memory:
        print_memory(documents[0])
        return
    warnings.simplefilter("ignore")
    output: Path | None = arguments.output
    is_begun = output is not None and output.exists()
    facts: dict[str, Any] = json.loads(output.read_text(encoding="utf-8")) if output and is_begun else {}
    model = Path(arguments.model).name
    if facts and facts["model"] != model:
        raise SystemExit(f"{output} has results of the model {facts['model']}; choose another file")
    facts = {"machine": machine(), "model": model, "documents": {}, "times": {}, "memory": {}} | facts

    def save() -> None:
        facts["summary"] = summarize(facts["documents"])
        if output is not None:
            replace_bytes(output, f"{json.dumps(facts, ensure_ascii=False, indent=1)}\n".encode())

    found = {name_of(path, arguments.paths): (path, form) for path, form in documents}
    translator = transformer.load(arguments.model, workers=1)
    translate_all(found, translator, facts["documents"], arguments.segments, save)
    compare_all(found, translator, facts, arguments.timed, save)
    translator.close()
    if arguments.memory:
        measure_all(found, facts, save)
    print(json.dumps(facts["summary"], ensure_ascii=False, indent=1))


def translate_all(
    found: dict[str, Found], translator: Translator, results: dict[str, Any], n_segments: int, save: Callable[[], None]
) -> None:
    """Translates documents until the results have enough segments."""
    languages = translator.config.source_language, translator.config.target_language
    for name in documents_of(found, results, n_segments):
        try:
            result = translate(found[name], line_translator(translator), languages)
        except DataError as error:
            refusal = str(error).replace(str(found[name][0]), name)
            result = {"format": found[name][1], "refused": refusal}
        results[name] = result
        print(f"{name}: {result.get('counts', result)}", flush=True)
        save()
    save()


def of_format(found: dict[str, Found], results: dict[str, Any], n_segments: int) -> dict[str, list[str]]:
    """Returns the names of the translated documents of each format that have at least a number of segments."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, result in results.items():
        if name in found and result.get("segments", 0) >= n_segments:
            names[result["format"]].append(name)
    return names


def compare_all(
    found: dict[str, Found], translator: Translator, facts: dict[str, Any], n_timed: int, save: Callable[[], None]
) -> None:
    """Times some documents of each format that have not been timed yet."""
    languages = translator.config.source_language, translator.config.target_language
    for names in of_format(found, facts["documents"], MIN_TIMED).values():
        for name in names[:n_timed]:
            if name not in facts["times"]:
                facts["times"][name] = compare_times(found[name], translator, languages)
                print(f"{name}: {facts['times'][name]}", flush=True)
                save()


def measure_all(found: dict[str, Found], facts: dict[str, Any], save: Callable[[], None]) -> None:
    """Measures the memory of the first, largest document of each format."""
    for form, names in of_format(found, facts["documents"], 1).items():
        facts["memory"][form] = measure_memory(found[names[0]])
        print(f"{form}: {facts['memory'][form]}", flush=True)
        save()


if __name__ == "__main__":
    main()
