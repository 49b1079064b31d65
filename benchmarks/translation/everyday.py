"""Translates 100 everyday sentences, for people to rate, and counts the ratings.

The sentences and their translations were written for this project; `everyday.tsv` has them by kind. Each table of
`docs/experiments/everyday-sentences/` has a row for each sentence: its kind, the sentence, and for each version of the
model the translation and its rating. `good` is a translation that needs no change, `usable` one that says the same with
a fault of grammar or style, and `wrong` everything else.

    python benchmarks/translation/everyday.py en-de --version 2.0   # adds two columns to the table; rate them by hand
    python benchmarks/translation/everyday.py en-de                 # counts the ratings
"""

import argparse
import csv
import warnings
from collections import Counter
from pathlib import Path

import transformer

SENTENCES = Path(__file__).with_name("everyday.tsv")
TABLES = Path(__file__).parents[2] / "docs" / "experiments" / "everyday-sentences"
RATINGS = ("good", "usable", "wrong")


def read_table(path: Path) -> list[list[str]]:
    """Returns the rows of a table, the header first."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def add_version(model: str, version: str, path: Path) -> None:
    """Adds the translations of a model to its table, with a column for their ratings."""
    source = model.partition("-")[0]
    header, *rows = read_table(SENTENCES)
    table = read_table(path) if path.exists() else [[row[0], row[header.index(source)]] for row in [header, *rows]]
    warnings.simplefilter("ignore")
    translations = transformer.load(model).translate([row[1] for row in table[1:]])
    columns = [(f"version {version}", f"rating {version}"), *((text, "") for text in translations)]
    lines = ("\t".join([*row, *added]) for row, added in zip(table, columns, strict=True))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def count_ratings(path: Path) -> None:
    """Prints the number of ratings of each version, by kind of sentence."""
    header, *rows = read_table(path)
    for column, title in enumerate(header):
        if title.startswith("rating "):
            print(title.replace("rating", "version"))
            for kind in [*dict.fromkeys(row[0] for row in rows), "all"]:
                counts = Counter(row[column] for row in rows if kind in (row[0], "all"))
                print(f"  {kind:10}", "  ".join(f"{counts[rating]:3} {rating}" for rating in RATINGS))


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["en-de", "de-en"])
    parser.add_argument("--version", help="version of the model whose translations are added")
    arguments = parser.parse_args()
    path = TABLES / f"{arguments.model}.tsv"
    if arguments.version:
        add_version(arguments.model, arguments.version, path)
    count_ratings(path)


if __name__ == "__main__":
    main()
