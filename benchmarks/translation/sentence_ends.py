"""Sentence ends that are found in lines joined to paragraphs, against an earlier pattern and sentencex alone.

python benchmarks/translation/sentence_ends.py --data ../shared/data --output results.json
"""

import argparse
import json
import platform
import random
import re
from collections.abc import Callable
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path

from sentencex.sentencex import segment

from transformer.runtime.machine import machine
from transformer.text.sentences import sentence_spans

CORPORA = (
    "wmt/newstest2014.en", "wmt/newstest2014.de", "tatoeba-en-de/test.en", "tatoeba-en-de/test.de",
    "multi30k/test_2016_flickr.en", "multi30k/test_2016_flickr.de", "multi30k/test_2016_flickr.fr",
)  # fmt: skip
LINES = 1500
EARLIER = re.compile(r"""(?<=[.!?…])["'”’»)\]]*\s+|(?<=[。！？])\s*""")
"""The pattern of sentence ends before sentencex."""

Split = Callable[[str, str], list[str]]


def by_pattern(text: str, language: str) -> list[str]:
    """Returns the sentences by the earlier pattern."""
    del language
    ends = [match.end() for match in EARLIER.finditer(text)]
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


def by_library(text: str, language: str) -> list[str]:
    """Returns the sentences by sentencex alone."""
    return list(segment(language, text))


def by_project(text: str, language: str) -> list[str]:
    """Returns the sentences by `transformer.text.sentences`."""
    return [text[start:end] for start, end in sentence_spans(text, language)]


def ends(parts: list[str]) -> set[int]:
    """Returns the positions after all parts but the last one, in characters that are not white space."""
    return set(accumulate(len("".join(part.split())) for part in parts[:-1]))


def measure(lines: list[str], language: str, split: Split) -> dict[str, int]:
    """Returns the number of ends that are missed, and of those that are within a line of the corpus."""
    numbers, start = random.Random(1), 0
    counts = {"ends": 0, "missed": 0, "invented": 0}
    while start < len(lines):
        size = numbers.randint(2, 8)
        paragraph = lines[start : start + size]
        start += size
        wanted, actual = ends(paragraph), ends(split(" ".join(paragraph), language))
        counts["ends"] += len(wanted)
        counts["missed"] += len(wanted - actual)
        counts["invented"] += len(actual - wanted)
    return counts


def main() -> None:
    """Measures all corpora and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    ways: dict[str, Split] = {"earlier pattern": by_pattern, "sentencex": by_library, "here": by_project}
    results: dict[str, dict[str, dict[str, int]]] = {}
    for name in CORPORA:
        text = (arguments.data / name).read_text(encoding="utf-8")
        lines = [line.strip() for line in text.split("\n") if line.strip()][:LINES]
        results[name] = {way: measure(lines, name.rsplit(".", 1)[1], split) for way, split in ways.items()}
    facts = {
        "command": f"sentence_ends.py --data {arguments.data.name}",
        "machine": machine(),
        "versions": {"python": platform.python_version(), "sentencex": version("sentencex"), "regex": version("regex")},
        "spread": "none: the counts are the same in every run",
    }
    arguments.output.write_text(json.dumps({**facts, "results": results}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
