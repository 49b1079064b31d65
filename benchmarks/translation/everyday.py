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


def add_version(direction: str, version: str, model: str, path: Path) -> None:
    """Adds the translations of a model to the table of its direction, with a column for their ratings.

    Columns of the same version are replaced. A translation that is rated in the table keeps its rating.
    """
    source, title = direction.partition("-")[0], f"version {version}"
    header, *rows = read_table(SENTENCES)
    table = read_table(path) if path.exists() else [[row[0], row[header.index(source)]] for row in [header, *rows]]
    place = table[0].index(title) if title in table[0] else len(table[0])
    warnings.simplefilter("ignore")
    translations = transformer.load(model).translate([row[1] for row in table[1:]])
    table[0][place : place + 2] = [title, f"rating {version}"]
    for row, text in zip(table[1:], translations, strict=True):
        rated = dict(zip(row[2::2], row[3::2], strict=True))
        row[place : place + 2] = [text, rated.get(text, "")]
    path.write_text("".join("\t".join(row) + "\n" for row in table), encoding="utf-8")


def ratings(path: Path) -> dict[str, dict[str, Counter[str]]]:
    """Returns the number of each rating, by version and kind of sentence; the kind `all` has all of them."""
    header, *rows = read_table(path)
    return {
        title.removeprefix("rating "): {
            kind: Counter(row[column] for row in rows if kind in (row[0], "all"))
            for kind in [*dict.fromkeys(row[0] for row in rows), "all"]
        }
        for column, title in enumerate(header)
        if title.startswith("rating ")
    }


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["en-de", "de-en"])
    parser.add_argument("--version", help="version of the model whose translations are added")
    parser.add_argument("--path", help="path of the model, if another one is installed")
    arguments = parser.parse_args()
    table = TABLES / f"{arguments.model}.tsv"
    if arguments.version:
        add_version(arguments.model, arguments.version, arguments.path or arguments.model, table)
    for version, by_kind in ratings(table).items():
        print(f"version {version}")
        for kind, counts in by_kind.items():
            print(f"  {kind:10}", "  ".join(f"{counts[rating]:3} {rating}" for rating in RATINGS))


if __name__ == "__main__":
    main()
