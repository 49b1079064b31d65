"""Writes extra sentence pairs that teach a model what a corpus of everyday sentences lacks.

Tatoeba has hardly any single words, addresses or emoji, and most of its people are called Tom or Mary. From pairs of
the corpus itself this program makes pairs with other names, numbers, addresses, emoji, letter case and punctuation, and
pairs of single words. With `--phrases`, it writes short pairs instead: greetings, answers, introductions, and the
shortest pairs of the corpus. Equal arguments give equal files.

    python models/augment.py train.en train.de --output augmented   # writes augmented.en and augmented.de
    python models/augment.py train.en train.de --phrases models/phrases.tsv --output short
"""

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np

Pair = tuple[str, str]

NUMBER: Final = re.compile(r"(?<![\w.,:/-])\d+(?![\w.,:/-])")
END: Final = re.compile(r"[.!?]+$")
EMOJI: Final = [
    "😀", "😂", "👍", "❤️", "🎉", "🙏", "😢", "🔥", "👋", "🚀", "😅", "🤔", "✅", "☕", "🐱", ":)", ";-)", "<3",
]  # fmt: skip
ONSETS: Final = [
    "b", "br", "ch", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "qu", "r", "s", "sch",
    "sh", "st", "t", "tr", "v", "w", "x", "y", "z",
]  # fmt: skip
VOWELS: Final = ["a", "e", "i", "o", "u", "ai", "ei", "ia", "io", "ou", "ö", "ü", "é"]
CODAS: Final = ["", "", "", "n", "r", "s", "l", "m", "k", "nd", "tt", "x", "ng", "ck"]
HOSTS: Final = ["example", "python", "shop", "my-site", "news", "wiki", "blog", "data-center", "mail", "city", "web2"]
DOMAINS: Final = ["com", "org", "de", "net", "io", "co.uk", "eu", "info"]


def name(rng: random.Random) -> str:
    """Returns a made-up name of one to three syllables."""
    syllables = rng.choice([1, 2, 2, 2, 3])
    word = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(syllables))
    return word.capitalize()


def number(rng: random.Random) -> str:
    """Returns a number as it is written in everyday text."""
    kinds: list[Callable[[], object]] = [
        lambda: rng.randint(2, 100), lambda: rng.randint(2, 100), lambda: rng.randint(100, 1000),
        lambda: rng.randint(1900, 2040), lambda: rng.randint(1000, 99999), lambda: rng.randint(10**5, 10**9),
    ]  # fmt: skip
    return str(rng.choice(kinds)())


def address(rng: random.Random) -> str:
    """Returns a web or mail address."""
    host = f"{rng.choice([rng.choice(HOSTS), name(rng).lower()])}.{rng.choice(DOMAINS)}"
    path = "/".join(rng.choice([name(rng).lower(), number(rng), "index.html", "a_b", "q?x=1"]) for _ in range(2))
    kinds = [f"https://{host}", f"https://www.{host}/{path}", f"www.{host}", f"http://{host}/{path}",
             f"{name(rng).lower()}@{host}", f"{name(rng).lower()}.{name(rng).lower()}@{host}"]  # fmt: skip
    return rng.choice(kinds)


def with_other_names(pair: Pair, rng: random.Random) -> Pair | None:
    """Replaces the names of a pair, and at times takes the name of a place or a company for a person."""
    names = {"Mary": "Mary|Maria", "Tom": "Tom", "John": "John|Johannes"}
    source, target = pair
    changed = False
    for pattern in names.values():
        boundary = re.compile(rf"\b(?:{pattern})(?='s\b|s?\b)")
        count = len(boundary.findall(source))
        if not count or count != len(boundary.findall(target)):
            continue
        other = name(rng) if rng.random() < 0.7 else f"{name(rng)} {name(rng)}"
        genitive = f"{other}'" if other[-1] in "sxz" else f"{other}s"
        source, target = (
            boundary.sub(other, re.sub(rf"\b(?:{pattern})s\b", genitive, side)) for side in (source, target)
        )
        changed = True
    return (source, target) if changed else None


def with_other_numbers(pair: Pair, rng: random.Random) -> Pair | None:
    """Replaces the numbers that stand on both sides."""
    source, target = pair
    numbers = NUMBER.findall(source)
    if not numbers or Counter(numbers) != Counter(NUMBER.findall(target)) or "1" in numbers:
        return None
    others = {old: number(rng) for old in set(numbers)}
    return tuple(NUMBER.sub(lambda match: others[match[0]], side) for side in (source, target))  # type: ignore[return-value]


def with_address(pair: Pair, rng: random.Random) -> Pair | None:
    """Adds an address before the end, after it, or in front."""
    ends = [END.search(side) for side in pair]
    added = address(rng) if rng.random() < 0.7 else f"({address(rng)})"
    place = rng.random()
    if place < 0.2:
        return f"{added}: {pair[0]}", f"{added}: {pair[1]}"
    if place < 0.6 or not all(ends):
        return f"{pair[0]} {added}", f"{pair[1]} {added}"
    source, target = (f"{side[: end.start()]}: {added}" for side, end in zip(pair, ends, strict=True) if end)
    return source, target


def with_emoji(pair: Pair, rng: random.Random) -> Pair | None:
    """Adds the same emoji at the end of both sides."""
    added = "".join(rng.choices(EMOJI, k=rng.choice([1, 1, 1, 2, 3])))
    return f"{pair[0]} {added}", f"{pair[1]} {added}"


def without_end(pair: Pair, rng: random.Random) -> Pair | None:
    """Removes the punctuation at the end, as people write short messages."""
    if not all(side.endswith(".") and not side.endswith("..") for side in pair):
        return None
    source, target = (side[:-1] for side in pair)
    return (source.lower() if rng.random() < 0.3 else source), target


def in_other_case(pair: Pair, rng: random.Random) -> Pair | None:
    """Writes the source in small letters, or both sides in capitals."""
    if rng.random() < 0.7:
        return pair[0].lower(), pair[1]
    return pair[0].upper(), pair[1].upper()


def copied(rng: random.Random) -> Pair:
    """Returns a line that stays as it is: names, numbers, addresses."""
    kinds = [name(rng), f"{name(rng)} {name(rng)}", f"{name(rng)} {number(rng)}", number(rng), address(rng),
             f"{name(rng)} {rng.choice(EMOJI)}", f"{name(rng)}, {name(rng)}"]  # fmt: skip
    line = rng.choice(kinds)
    return line, line


CHANGES: Final = [
    (with_other_names, 0.06), (with_other_numbers, 0.6), (with_address, 0.02), (with_emoji, 0.02), (without_end, 0.05),
    (in_other_case, 0.02),
]  # fmt: skip
"""Changes, and the share of the pairs that each is made of."""


def words(text: str) -> list[str]:
    """Returns the words of a text."""
    return re.findall(r"[^\W\d_]+(?:['’][^\W\d_]+)?", text)


class Lexicon:
    """Translation probabilities of words, learned by IBM Model 1 (Brown et al. 1993) with five rounds of EM."""

    def __init__(self, pairs: Iterable[Pair], rounds: int = 5) -> None:
        self.source: dict[str, int] = {}
        self.target: dict[str, int] = {}
        groups: list[np.ndarray] = []
        links: list[np.ndarray] = []
        for n, (source, target) in enumerate(pairs):
            left = [self.source.setdefault(word, len(self.source)) for word in words(source)]
            right = [self.target.setdefault(word, len(self.target)) for word in words(target)]
            grid = np.array([(s, t, n * 128 + j) for j, t in enumerate(right) for s in left]).reshape(-1, 3)
            links.append(grid[:, :2])
            groups.append(grid[:, 2])
        table, self.index = np.unique(np.concatenate(links), axis=0, return_inverse=True)
        self.links = table
        _, group = np.unique(np.concatenate(groups), return_inverse=True)
        p = np.ones(len(table))
        for _ in range(rounds):
            weights = p[self.index]
            weights /= np.bincount(group, weights)[group]
            count = np.bincount(self.index, weights, minlength=len(table))
            p = count / np.bincount(table[:, 0], count)[table[:, 0]]
        self.p, self.count = p, count


def single_words(pairs: list[Pair], at_least: float = 0.35, seen: int = 4) -> list[Pair]:
    """Returns words that translate each other with a high probability in both directions."""
    forward, backward = Lexicon(pairs), Lexicon([(target, source) for source, target in pairs])
    back_names = list(backward.source), list(backward.target)
    back = {
        (back_names[1][t], back_names[0][s]): p for (s, t), p in zip(backward.links.tolist(), backward.p, strict=True)
    }
    names = list(forward.source), list(forward.target)
    entries: list[Pair] = []
    for (s, t), p, count in zip(forward.links.tolist(), forward.p, forward.count, strict=True):
        source, target = names[0][s], names[1][t]
        if p >= at_least and count >= seen and back.get((source, target), 0) >= at_least and source.isalpha():
            entries.append((source, target))
    return sorted(entries)


def augment(pairs: list[Pair], seed: int) -> list[Pair]:
    """Returns the extra pairs."""
    rng = random.Random(seed)
    extra: list[Pair] = []
    for pair in pairs:
        for change, share in CHANGES:
            if rng.random() < share and (changed := change(pair, rng)):
                extra.append(changed)
    extra += [copied(rng) for _ in range(len(pairs) // 50)]
    for source, target in single_words(pairs):
        extra.append((source, target))
        if rng.random() < 0.2:
            extra.append((f"{source.capitalize()}.", f"{target[:1].upper()}{target[1:]}."))
    rng.shuffle(extra)
    return extra


NAMES: Final = [
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Hannah", "Jonas", "Julia", "Karl", "Laura", "Leon", "Lisa",
    "Lukas", "Marie", "Max", "Nina", "Paul", "Peter", "Sarah", "Sophie", "Thomas", "Tim", "Eva", "Michael", "Martin",
    "Susan", "James", "Alice", "Bob", "Kate", "George", "Maria", "Ali", "Yuki", "Pierre", "Ahmed", "Olga",
    "Smith", "Müller",
]  # fmt: skip
INTRODUCTIONS: Final = [
    ("My name is {}.", "Ich heiße {}."), ("My name is {}.", "Mein Name ist {}."), ("I'm {}.", "Ich bin {}."),
    ("I am {}.", "Ich bin {}."), ("Hello, {}!", "Hallo, {}!"), ("Hello {},", "Hallo {},"), ("Hi {}!", "Hallo {}!"),
    ("Good morning, {}.", "Guten Morgen, {}."), ("Goodbye, {}!", "Auf Wiedersehen, {}!"),
    ("Thank you, {}.", "Danke, {}."), ("This is {}.", "Das ist {}."), ("Dear {},", "Liebe {},"),
    ("Where is {}?", "Wo ist {}?"), ("Mr. {}", "Herr {}"), ("Mrs. {}", "Frau {}"),
    ("Hello, my name is {}.", "Hallo, ich heiße {}."), ("Happy birthday, {}!", "Alles Gute zum Geburtstag, {}!"),
    ("How are you, {}?", "Wie geht es dir, {}?"), ("Yes, {}.", "Ja, {}."), ("No, {}.", "Nein, {}."),
]  # fmt: skip
"""Sentences with a name, in English and German."""
N_INTRODUCTIONS: Final = 4000
PHRASE_COPIES, OTHER_COPIES, SHORT_COPIES = 12, 3, 3
"""Copies of each form of a phrase, of each form of its other translations, and of the shortest pairs of the corpus."""


def forms(source: str, target: str) -> list[Pair]:
    """Returns the ways to write a phrase: with and without its end, with an exclamation mark, in small letters."""
    if source.endswith("?"):
        return [(source, target), (source.lower(), target), (source[:-1], target[:-1])]
    capital = target[:1].upper() + target[1:]
    start = source[:1].upper() + source[1:]
    return [(f"{start}.", f"{capital}."), (f"{start}!", f"{capital}!"), (source, target), (source.lower(), target)]


def short_pairs(pairs: list[Pair], phrases: list[Pair], introductions: list[Pair], seed: int) -> list[Pair]:
    """Returns pairs of a few words. Of several translations of a phrase, the first one counts most."""
    rng = random.Random(seed)
    short = [pair for pair in pairs if max(len(side.split()) for side in pair) <= 2] * SHORT_COPIES
    seen: set[str] = set()
    for source, target in phrases:
        short += forms(source, target) * (OTHER_COPIES if source in seen else PHRASE_COPIES)
        seen.add(source)
    for _ in range(N_INTRODUCTIONS):
        source, target = rng.choice(introductions)
        person = rng.choice(NAMES) if rng.random() < 0.6 else name(rng)
        short.append((source.format(person), target.format(person)))
    rng.shuffle(short)
    return short


def read_phrases(path: Path, sides: list[str]) -> list[Pair]:
    """Returns the phrases of a table with English and German, in the order of the languages `sides`."""
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    columns = [("en", "de").index(side) for side in sides]
    return [(line[columns[0]], line[columns[1]]) for line in lines]


def main() -> None:
    """Reads a corpus and writes the extra pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--output", required=True, help="name of the two files without the ending")
    parser.add_argument("--phrases", type=Path, help="table of phrases; writes short pairs")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sides = [path.read_text(encoding="utf-8").splitlines() for path in (arguments.source, arguments.target)]
    pairs: list[Pair] = list(zip(*sides, strict=True))
    if arguments.phrases is None:
        extra = augment(pairs, arguments.seed)
    else:
        languages = [path.suffix[1:] for path in (arguments.source, arguments.target)]
        introductions = [pair if languages[0] == "en" else pair[::-1] for pair in INTRODUCTIONS]
        extra = short_pairs(pairs, read_phrases(arguments.phrases, languages), introductions, arguments.seed)
    for path, side in zip((arguments.source, arguments.target), zip(*extra, strict=True), strict=True):
        Path(f"{arguments.output}{path.suffix}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    print(f"{len(extra):,} extra pairs of {len(sides[0]):,}")


if __name__ == "__main__":
    main()
