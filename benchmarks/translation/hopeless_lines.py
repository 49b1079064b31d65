"""What does translating again cost on lines that no translation helps, and on ordinary ones?

Each set has 200 lines: Tatoeba, newstest2014, messages of programs, random letters and digits, and product codes. They
are translated in turns with second searches and without (`retry_degenerate=False`), in one process; the ratio of the
times is the median of the turns.

python benchmarks/translation/hopeless_lines.py --data ../shared/data --output results.json
"""

import argparse
import gzip
import json
import random
import statistics
import string
import time
import warnings
from pathlib import Path

import transformer
from transformer import Search
from transformer.runtime.machine import machine

LINES, TURNS = 200, 5


def make_sets(data: Path) -> dict[str, list[str]]:
    """Returns the lines of each set."""
    rng = random.Random(3)

    def word(characters: str) -> str:
        return "".join(rng.choices(characters, k=rng.randint(2, 9)))

    with gzip.open(data / "software-en-de/train.en.gz", "rt", encoding="utf-8") as file:
        messages = [next(file).rstrip("\n") for _ in range(40 * LINES)][::40]
    read = {name: (data / f"{name}.en").read_text(encoding="utf-8").split("\n")[:LINES] for name in
            ("tatoeba-en-de/test", "wmt/newstest2014")}  # fmt: skip
    mixed = string.ascii_letters + string.digits
    return {
        "Tatoeba": read["tatoeba-en-de/test"],
        "newstest2014": read["wmt/newstest2014"],
        "messages of programs": messages,
        "random letters and digits": [" ".join(word(mixed) for _ in range(rng.randint(3, 12))) for _ in range(LINES)],
        "product codes": [
            f"Order {word(string.ascii_uppercase)}-{rng.randint(10, 99)}/{rng.randint(1000, 9999)} of {word(mixed)}."
            for _ in range(LINES)
        ],
    }


def seconds(translator: transformer.Translator, lines: list[str], search: Search) -> float:
    """Returns the time of one translation of the lines."""
    started = time.perf_counter()
    translator.translations(lines, search=search)
    return time.perf_counter() - started


def main() -> None:
    """Measures all sets and writes the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    translator = transformer.load(arguments.model, workers=1)
    results: dict[str, dict[str, float]] = {}
    for name, lines in make_sets(arguments.data).items():
        for beam in (1, 4):
            searches = Search(beam=beam), Search(beam=beam, retry_degenerate=False)
            turns = [[seconds(translator, lines, search) for search in searches] for _ in range(TURNS + 1)][1:]
            ratios = [with_retries / without for with_retries, without in turns]
            results[f"{name}, beam {beam}"] = figures = {
                "ratio": round(statistics.median(ratios), 2),
                "lowest": round(min(ratios), 2),
                "highest": round(max(ratios), 2),
                "seconds": round(statistics.median(first for first, _ in turns), 3),
            }
            print(f"{name + f', beam {beam}':36}{figures}", flush=True)
    if arguments.output:
        facts = {"machine": machine(), "model": arguments.model, "lines": LINES, "turns": TURNS, "results": results}
        arguments.output.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
