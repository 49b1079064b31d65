"""Scores of paragraphs: sentences joined to lines, against the same sentences given one a line.

python benchmarks/translation/paragraphs.py MODEL --source test.en --reference test.de --output results.json
"""

import argparse
import json
import platform
import random
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import sacrebleu

import transformer
from transformer.bundle import load_bundle
from transformer.pipelines.translation.translator import Translator
from transformer.runtime.machine import machine
from transformer.text.joining import join_sentences

ENDS = re.compile(r"[.!?][\"'”’»)]*\s*$")
"""End of a line whose end is seen once it is joined to others; other lines are left out."""


def paragraphs(n_lines: int, sizes: tuple[int, int], seed: int = 1) -> Iterator[range]:
    """Yields the lines of each paragraph."""
    numbers, start = random.Random(seed), 0
    while start < n_lines:
        end = min(n_lines, start + numbers.randint(*sizes))
        yield range(start, end)
        start = end


def scores(outputs: list[str], references: list[str]) -> dict[str, float]:
    """Returns BLEU and chrF."""
    bleu, chrf = (score(outputs, [references]).score for score in (sacrebleu.corpus_bleu, sacrebleu.corpus_chrf))
    return {"bleu": round(bleu, 2), "chrf": round(chrf, 2)}


def measure(translator: Translator, sources: list[str], references: list[str]) -> dict[str, object]:
    """Returns the scores of paragraphs of several sizes, and of the same sentences given one a line."""
    single = [translation.text for translation in translator.translations(sources)]
    results: dict[str, object] = {"lines": len(sources)}
    for sizes in ((1, 1), (2, 2), (3, 4), (5, 8), (1, 8)):
        groups = list(paragraphs(len(sources), sizes))
        joined, by_line, wanted = (
            [join_sentences(texts[i].strip() for i in group) for group in groups]
            for texts in (sources, single, references)
        )
        together = translator.translations(joined)
        again = sum("sentence by sentence" in "".join(translation.flags) for translation in together)
        results[f"{sizes[0]} to {sizes[1]} sentences"] = {
            "one a line": scores(by_line, wanted),
            "as paragraphs": scores([translation.text for translation in together], wanted),
            "translated again by sentence": again,
        }
    return results


def main() -> None:
    """Measures a model with each way of splitting and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--any-end", action="store_true", help="also take lines that do not end with . ! or ?")
    parser.add_argument("--split", nargs="+", default=["auto", "none"])
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    paths = arguments.source, arguments.reference
    texts = [path.read_text(encoding="utf-8").split("\n")[: arguments.lines] for path in paths]
    pairs = list(zip(*texts, strict=True))
    if not arguments.any_end:
        pairs = [pair for pair in pairs if all(ENDS.search(side) for side in pair)]
    pairs = [pair for pair in pairs if all(pair)]
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    results = {
        split: measure(transformer.load(arguments.model, workers=1, split=split), sources, references)
        for split in arguments.split
    }
    command = f"paragraphs.py {arguments.model.name} --source {arguments.source.name} --lines {arguments.lines}"
    command += " --any-end" if arguments.any_end else ""
    packages = ("transformer", "torch", "tokenizers", "sacrebleu", "sentencex")
    facts = {
        "command": command,
        "machine": machine(),
        "versions": {name: version(name) for name in packages} | {"python": platform.python_version()},
        "spread": "none: translations and scores are the same in every run",
        "trained": load_bundle(arguments.model, packed_in="int8").provenance["recipe"],
    }
    data = str(arguments.source.resolve().parents[1])  # corpora of the recipe are usually beside the test set
    text = json.dumps({**facts, **results}, indent=1).replace(data, "../shared/data")
    arguments.output.write_text(text + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
