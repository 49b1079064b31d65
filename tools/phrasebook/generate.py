"""Generates the demo's corpus: English sentences from a small grammar with their German translations.

Held-out sentences hold a reserved pair: an adjective with a noun, or a verb with an object noun, that no training
sentence combines, although each of their words occurs in training. One pair in ten is reserved, by a hash.
"""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

from phrasebook.clauses import Element
from phrasebook.grammar import Cell, cells, word_pairs
from phrasebook.words import WordPair
from transformer.demo.corpus import Phrasebook
from transformer.errors import ConfigError

__all__ = ["build_phrasebook", "reserved_pairs"]

_WORD = re.compile(r"[\w'-]+|[^\w\s]")
Sentences = list[tuple[str, str]]


def reserved_pairs(seed: int = 1) -> frozenset[WordPair]:
    """Returns the (adjective, noun) and (verb, object noun) pairs that only held-out sentences combine.

    They are a tenth of all pairs, those with the smallest hash; but no word loses more than a fifth of its pairs, so
    that training has enough of every word.
    """

    def digest(pair: WordPair) -> bytes:
        return hashlib.blake2b(f"{seed} {pair[0]} {pair[1]}".encode()).digest()

    left = Counter(word for pair in word_pairs() for word in pair)
    least = {word: 0.8 * count for word, count in left.items()}
    reserved: set[WordPair] = set()
    for pair in sorted(word_pairs(), key=digest):
        if len(reserved) < len(word_pairs()) // 10 and all(left[word] - 1 >= least[word] for word in pair):
            reserved.add(pair)
            left.subtract(pair)
    return frozenset(reserved)


def _split(factor: Sequence[Element], reserved: frozenset[WordPair]) -> tuple[list[Element], list[Element]]:
    clean = [element for element in factor if reserved.isdisjoint(element.pairs)]
    return clean, [element for element in factor if not reserved.isdisjoint(element.pairs)]


def _divide(reserved: frozenset[WordPair]) -> tuple[list[Cell], list[Cell]]:
    """Divides the grammar into the cells without and with reserved pairs.

    A sentence is held out because of the first of its elements that has a reserved pair: the elements before that are
    clean and those after are free, so the held-out sentences of a cell are again cells that do not overlap.
    """
    splits: dict[int, tuple[list[Element], list[Element]]] = {}
    training: list[Cell] = []
    held_out: list[Cell] = []
    for cell in cells():
        for factor in cell.factors:
            if id(factor) not in splits:
                splits[id(factor)] = _split(factor, reserved)
        clean = tuple(splits[id(factor)][0] for factor in cell.factors)
        training.append(Cell(cell.weight, cell.form, cell.slots, clean))
        blocks = [
            (*clean[:first], splits[id(factor)][1], *cell.factors[first + 1 :])
            for first, factor in enumerate(cell.factors)
            if splits[id(factor)][1]
        ]
        held_out += [Cell(cell.weight / len(blocks), cell.form, cell.slots, block) for block in blocks]
    return [cell for cell in training if cell.size], [cell for cell in held_out if cell.size]


def _quotas(parts: Sequence[Cell], count: int, generator: random.Random) -> Counter[int]:
    """Distributes `count` among the cells at random by weight, at most its size for each."""
    quotas: Counter[int] = Counter()
    sizes = [cell.size for cell in parts]
    while missing := count - quotas.total():
        free = [index for index, size in enumerate(sizes) if quotas[index] < size]
        bounds = list(accumulate(parts[index].weight for index in free))
        for index, wanted in Counter(generator.choices(free, cum_weights=bounds, k=missing)).items():
            quotas[index] = min(sizes[index], quotas[index] + wanted)
    return quotas


def _draw(parts: Sequence[Cell], count: int, generator: random.Random) -> Sentences:
    """Draws distinct sentences, in random order."""
    quotas = _quotas(parts, count, generator)
    drawn = [
        parts[index].sentence(position)
        for index, quota in sorted(quotas.items())
        for position in generator.sample(range(parts[index].size), quota)
    ]
    generator.shuffle(drawn)
    return drawn


def _check_available(name: str, count: int, available: int, what: str) -> None:
    if count > available:
        raise ConfigError(f"{name}={count} exceeds the {available} {what} the grammar can make; choose fewer")


def _known(candidates: Iterable[tuple[str, str]], train: Sentences) -> Sentences:
    """Keeps sentences all of whose English and German words occur in training."""
    english, german = ({word for pair in train for word in _WORD.findall(pair[side])} for side in (0, 1))
    return [
        (source, target)
        for source, target in candidates
        if english.issuperset(_WORD.findall(source)) and german.issuperset(_WORD.findall(target))
    ]


def build_phrasebook(n_train: int = 40_000, n_validation: int = 500, n_test: int = 500, seed: int = 1) -> Phrasebook:
    """Generates the corpus; the same arguments give the same corpus.

    Args:
        n_train: Number of training pairs.
        n_validation: Number of held-out pairs for validation.
        n_test: Number of further held-out pairs for testing.
        seed: Random seed of both the reserved pairs of words and the sentences.

    Raises:
        ConfigError: a number is negative or more than the grammar can make, or the training pairs are so few that
            they lack the words of the held-out pairs.
    """
    for name, count in (("n_train", n_train), ("n_validation", n_validation), ("n_test", n_test)):
        if count < 0:
            raise ConfigError(f"{name}={count} is negative; choose 0 or more")
    training, held_out = _divide(reserved_pairs(seed))
    available = sum(cell.size for cell in held_out)
    wanted = n_validation + n_test
    _check_available("n_train", n_train, sum(cell.size for cell in training), "sentences")
    _check_available("n_validation", n_validation, available, "held-out sentences")
    _check_available("n_test", n_test, available - n_validation, "remaining held-out sentences")
    generator = random.Random(seed)
    train = _draw(training, n_train, generator)
    known = _known(_draw(held_out, min(2 * wanted, available), generator), train)
    if len(known) < wanted:
        raise ConfigError(
            f"n_train={n_train} has the words of only {len(known)} held-out sentences of {wanted}; choose more"
        )
    return Phrasebook(tuple(train), tuple(known[:n_validation]), tuple(known[n_validation:wanted]))
