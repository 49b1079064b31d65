"""A baseline for the demo that needs no training: the translation of the most similar training sentence."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from transformer.errors import ConfigError

_WORD = re.compile(r"[\w'-]+|[^\w\s]")


def _counted_words(sentence: str) -> list[tuple[str, int]]:
    """Numbers the occurrences of each word, so that sentences with the same repetitions are more similar."""
    seen: Counter[str] = Counter()
    words: list[tuple[str, int]] = []
    for word in _WORD.findall(sentence.lower()):
        seen[word] += 1
        words.append((word, seen[word]))
    return words


def nearest_neighbour(train: Sequence[tuple[str, str]], sources: Sequence[str]) -> list[str]:
    """Translates each source by the translation of the most similar training sentence.

    Similarity is the Dice coefficient: twice the number of common words divided by the sum of the lengths. Ties are
    resolved in favour of the first sentence.

    Raises:
        ConfigError: there are sources but no training pairs.
    """
    if sources and not train:
        raise ConfigError("train is empty; give at least one training pair")
    lengths = np.zeros(len(train))
    postings: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for index, (english, _) in enumerate(train):
        words = _counted_words(english)
        lengths[index] = len(words)
        for word in words:
            postings[word].append(index)
    index_of = {word: np.array(indices) for word, indices in postings.items()}
    translations: list[str] = []
    for source in sources:
        words = _counted_words(source)
        common = np.zeros(len(train))
        for word in words:
            if word in index_of:
                common[index_of[word]] += 1
        translations.append(train[int(np.argmax(2 * common / (lengths + len(words))))][1])
    return translations
