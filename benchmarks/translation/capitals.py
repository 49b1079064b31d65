"""Scores translations of 500 test lines in capitals, in Title Case, without final full stops and with typos.

Scores are chrF and BLEU of lower-cased text. Lines without a full stop are compared with the same lines with it, each
against references with the same mark. A typo swaps two letters within one of ten words.

python benchmarks/translation/capitals.py en-de --data ../shared/data --output results.json
"""

import argparse
import json
import random
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from sacrebleu import corpus_bleu, corpus_chrf

import transformer
from transformer.runtime.machine import machine

LINES = 500
TYPO_SHARE = 0.1
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def title(line: str) -> str:
    """Returns a line with a capital at the start of each word."""
    return WORD.sub(lambda word: word[0][0].upper() + word[0][1:], line)


def with_typos(line: str, rng: random.Random) -> str:
    """Returns a line in which two neighbouring letters of one of ten words are swapped, not the first one."""

    def swap(match: re.Match[str]) -> str:
        word = match[0]
        if len(word) < 4 or rng.random() >= TYPO_SHARE:
            return word
        place = rng.randrange(1, len(word) - 1)
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]

    return WORD.sub(swap, line)


def scores(translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Returns chrF and BLEU of lower-cased texts."""
    lower = [line.lower() for line in translations], [[line.lower() for line in references]]
    return {"chrF": round(corpus_chrf(*lower).score, 2), "BLEU": round(corpus_bleu(*lower).score, 2)}


def main() -> None:
    """Translates each kind of lines and writes the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["en-de", "de-en"], help="bundled model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    paths = [arguments.data / "tatoeba-en-de" / f"test.{language}" for language in arguments.model.split("-")]
    lines, references = (path.read_text(encoding="utf-8").splitlines()[:LINES] for path in paths)
    rng = random.Random(5)
    kinds: dict[str, Callable[[str], str]] = {
        "plain": str, "capitals": str.upper, "Title Case": title, "lower case": str.lower,
        "typos": lambda line: with_typos(line, rng),
    }  # fmt: skip
    warnings.simplefilter("ignore")
    translators = {case: transformer.load(arguments.model, case=case) for case in ("auto", "keep")}
    results = {
        kind: {case: scores(translator.translate([*map(change, lines)]), references)
               for case, translator in translators.items()}
        for kind, change in kinds.items()
    }  # fmt: skip
    pairs = [pair for pair in zip(lines, references, strict=True) if all(side.endswith(".") for side in pair)]
    with_stop, without = [source for source, _ in pairs], [source.removesuffix(".") for source, _ in pairs]
    translate = translators["auto"].translate
    results["with a full stop"] = {"auto": scores(translate(with_stop), [reference for _, reference in pairs])}
    bare = [reference.removesuffix(".") for _, reference in pairs]
    results["without it"] = {"auto": scores(translate(without), bare)}
    trimmed = [line.removesuffix(".") for line in translate(with_stop)]
    results["with it, taken off for scoring"] = {"auto": scores(trimmed, bare)}
    for kind, by_case in results.items():
        print(f"{kind:32}", "  ".join(f"{case} {figures}" for case, figures in by_case.items()))
    if arguments.output:
        facts = {"machine": machine(), "lines": LINES, "lines with a full stop": len(pairs), "scores": results}
        arguments.output.write_text(json.dumps(facts, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
