"""Builds the corpora of the bundled models from packages of Debian, each with a stated licence.

    python models/build_corpora.py --output models/corpus      # needs apt-get and dpkg-deb; about 3 minutes

It writes pairs of files, one sentence per line: for each direction `dictionary` (words and phrases of the Ding
dictionary) and `examples` (its sentences), each text with its first translation; `messages` (of programs), `documents`
(help of programs), `phrases` (everyday phrases), `introductions` (sentences with names), and `software-test` and
`software-valid`, messages of packages that are held out. `sources.tsv` lists every package with its licence and number
of messages. Equal packages give equal files.
"""

import argparse
import random
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corpora.debian import is_allowed, stated_license, unpack
from corpora.dictionary import read_dictionary
from corpora.documents import pairs_by_id, pairs_by_structure
from corpora.messages import HIDDEN_SHARE, hide_placeholders, read_catalogues
from corpora.pairs import Corpus, TextPair, without_repetitions
from transformer.data.augment.names import GIVEN_NAMES

PACKAGES: Final = Path(__file__).parent / "corpora" / "packages.txt"
PHRASES: Final = Path(__file__).with_name("phrases.tsv")
INTRODUCTIONS: Final = Path(__file__).with_name("introductions.tsv")
SURNAMES: Final = (
    "Bauer", "Becker", "Braun", "Brown", "Cooper", "Davies", "Evans", "Fischer", "Garcia", "Green", "Hall", "Hartmann",
    "Hoffmann", "Huber", "Johnson", "Jones", "King", "Klein", "Koch", "Köhler", "Kowalski", "Krause", "Krüger", "Lange",
    "Lee", "Lehmann", "Maier", "Meyer", "Miller", "Müller", "Neumann", "Nguyen", "Novak", "Petrov", "Richter", "Rossi",
    "Schmidt", "Schneider", "Schröder", "Schulz", "Schwarz", "Smith", "Taylor", "Wagner", "Walker", "Weber", "White",
    "Williams", "Wilson", "Wolf", "Yilmaz", "Zimmermann",
)  # fmt: skip
SEED: Final = 1
TEST_PAIRS: Final = 2000
TEST_WORDS: Final = 3
"""Fewest English words of a test message."""
LARGEST_SHARE: Final = 2000
"""Most messages of a package, so that no program outweighs the others."""
SUITE: Final = "libreoffice-l10n-de"
SUITE_SHARE: Final = 12_000
DICTIONARY: Final = "trans-de-en"
DOCUMENTS: Final = (
    "libreoffice-help-en-us", "libreoffice-help-de", "gimp-help-en", "gimp-help-de", "gimp-help-common",
    "gnome-user-docs", "debian-handbook", "debian-reference-en", "debian-reference-de",
)  # fmt: skip
SENTENCE_END: Final = (".", "!", "?")


@dataclass(frozen=True)
class Packages:
    """Names of the packages with messages.

    Attributes:
        train: Packages to train on.
        test: Packages that are held out.
    """

    train: list[str]
    test: list[str]

    @classmethod
    def read(cls, path: Path) -> "Packages":
        """Reads one name per line; held-out packages have a `*` behind it."""
        names = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        return cls([name[0] for name in names if len(name) == 1], [name[0] for name in names if len(name) == 2])


def read_messages(
    packages: Mapping[str, Path], names: Iterable[str], hidden_share: float
) -> tuple[Corpus, dict[str, int]]:
    """Returns the messages of packages, and the number of each package's; a share of the placeholders becomes words."""
    corpus, counts = Corpus(), {}
    for name in names:
        rng = random.Random(f"{SEED} {name}")
        hidden = (hide_placeholders(pair, rng, hidden_share) for pair in read_catalogues(packages[name], "de"))
        own = Corpus()
        own.add(pair for pair in hidden if pair is not None)
        share = SUITE_SHARE if name == SUITE else LARGEST_SHARE
        kept = own.pairs if len(own.pairs) <= share else rng.sample(own.pairs, share)
        corpus.pairs += kept
        corpus.rejected.update(own.rejected)
        counts[name] = len(kept)
    return corpus, counts


def read_documents(packages: Mapping[str, Path]) -> Corpus:
    """Returns the blocks of the programs' documents."""
    help_folder = "usr/share/libreoffice/help"
    gimp, reference, handbook = (
        "usr/share/gimp/2.0/help",
        "usr/share/debian-reference",
        "usr/share/doc/debian-handbook/html",
    )
    corpus = Corpus()
    corpus.add(
        pairs_by_id(
            packages["libreoffice-help-en-us"] / help_folder / "en-US/text",
            packages["libreoffice-help-de"] / help_folder / "de/text", "**/*.html",
        )
    )  # fmt: skip
    for english, german, pattern, suffix in (
        (packages["gimp-help-en"] / gimp / "en", packages["gimp-help-de"] / gimp / "de", "*.html", ("", "")),
        (
            packages["gnome-user-docs"] / "usr/share/help/C",
            packages["gnome-user-docs"] / "usr/share/help/de",
            "*/*.page",
            ("", ""),
        ),
        (
            packages["debian-handbook"] / handbook / "en-US",
            packages["debian-handbook"] / handbook / "de-DE",
            "*.html",
            ("", ""),
        ),
        (
            packages["debian-reference-en"] / reference,
            packages["debian-reference-de"] / reference,
            "*.en.html",
            (".en.", ".de."),
        ),
    ):
        corpus.add(pairs_by_structure(english, german, pattern, suffix))
    return corpus


def read_phrases(path: Path) -> list[TextPair]:
    """Returns the phrases of a table with English and German.

    A phrase without final punctuation is returned with a full stop and with an exclamation mark too.
    """
    pairs = _table(path)
    ended = [pair for pair in pairs if pair.english[-1].isalpha() and pair.german[-1].isalpha()]
    return pairs + [TextPair(pair.english + mark, pair.german + mark) for mark in ".!" for pair in ended]


def read_introductions(path: Path) -> list[TextPair]:
    """Returns each sentence of a table with each of the usual names: given names for `{}`, surnames for `{surname}`."""
    given, surnames = [(name, "") for name in GIVEN_NAMES], [("", name) for name in SURNAMES]
    return [
        TextPair(*(text.format(name, surname=surname) for text in (pair.english, pair.german)))
        for pair in _table(path)
        for name, surname in (surnames if "{surname}" in pair.german else given)
    ]


def _table(path: Path) -> list[TextPair]:
    """Reads a table with English and German, in which comments begin with `#`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [TextPair(*line.split("\t")) for line in lines if not line.startswith("#")]


def write(folder: Path, name: str, pairs: list[TextPair]) -> None:
    """Writes the two files of a corpus."""
    for suffix, side in (("en", "english"), ("de", "german")):
        text = "".join(f"{getattr(pair, side)}\n" for pair in pairs)
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    print(f"{name}: {len(pairs):,} pairs, {sum(len(pair.english.split()) for pair in pairs):,} English words")


def build(output: Path, cache: Path) -> None:
    """Builds all corpora."""
    names = Packages.read(PACKAGES)
    packages = unpack([DICTIONARY, *DOCUMENTS, *names.train, *names.test], cache)
    licenses = {name: stated_license(folder) for name, folder in packages.items()}
    usable = [name for name in packages if is_allowed(licenses[name])]
    for name in sorted({*names.train, *names.test} - set(usable)):
        print(
            f"{name}: left out, {'not found' if name not in packages else 'no licence that allows it'}", file=sys.stderr
        )
    if refused := {DICTIONARY, *DOCUMENTS}.difference(usable):
        sys.exit(f"error: {', '.join(sorted(refused))}: not found, or no licence that allows it")
    output.mkdir(parents=True, exist_ok=True)
    rng = random.Random(SEED)

    dictionary = Corpus()
    dictionary.add(read_dictionary(packages[DICTIONARY] / "usr/share/trans/de-en"), max_ratio=3)
    documents = read_documents(packages)
    messages, counts = read_messages(packages, [name for name in names.train if name in usable], HIDDEN_SHARE)
    test, test_counts = read_messages(packages, [name for name in names.test if name in usable], 0)

    seen: set[str] = set()
    kept = {
        name: list(without_repetitions(pairs, seen))
        for name, pairs in (("documents", documents.pairs), ("messages", messages.pairs))
    }
    for direction, side in (("en-de", "english"), ("de-en", "german")):
        entries = list(without_repetitions(dictionary.pairs, set(), side))
        kept[f"examples-{direction}"] = [pair for pair in entries if pair.english.endswith(SENTENCE_END)]
        kept[f"dictionary-{direction}"] = [pair for pair in entries if not pair.english.endswith(SENTENCE_END)]
    kept["phrases"], kept["introductions"] = read_phrases(PHRASES), read_introductions(INTRODUCTIONS)
    held_out = [pair for pair in without_repetitions(test.pairs, seen) if len(pair.english.split()) >= TEST_WORDS]
    rng.shuffle(held_out)
    kept["software-test"], kept["software-valid"] = held_out[:TEST_PAIRS], held_out[TEST_PAIRS : 2 * TEST_PAIRS]
    for name, pairs in kept.items():
        write(output, name, pairs)
    rows = [(name, licenses[name], str({**counts, **test_counts}.get(name, ""))) for name in usable]
    (output / "sources.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    for name, corpus in (("dictionary", dictionary), ("documents", documents), ("messages", messages)):
        print(f"{name}: rejected {dict(corpus.rejected)}")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("models/corpus"), help="folder of the corpora")
    parser.add_argument("--packages", type=Path, default=Path("build/debian"), help="folder of the downloaded packages")
    arguments = parser.parse_args()
    build(arguments.output, arguments.packages.absolute())


if __name__ == "__main__":
    main()
