"""A corpus in two invented languages: every word has one translation, sentences are reversed."""

import random

LETTERS = ("abcdefgh", "nopqrstu", "ijklmvwxyz")
Corpus = tuple[list[str], list[str]]


def words(letters: str, n: int = 300, seed: int = 5) -> list[str]:
    """Returns distinct words of one language, the frequent ones first."""
    draw = random.Random(f"{letters}{seed}")
    return sorted({"".join(draw.choices(letters, k=draw.randint(3, 8))) for _ in range(n)}, key=lambda word: len(word))


def sentences(n: int, *, language: int = 2, seed: int = 3) -> list[str]:
    """Returns sentences of one language."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(words(LETTERS[language]), k=draw.randint(5, 11))) for _ in range(n)]


def invented(n: int, seed: int = 3) -> Corpus:
    """Returns parallel sentences of two languages with different letters."""
    draw = random.Random(seed)
    dictionary = list(zip(words(LETTERS[0]), words(LETTERS[1]), strict=False))
    weights = [1 / (rank + 10) for rank in range(len(dictionary))]
    chosen = [draw.choices(dictionary, weights, k=draw.randint(4, 12)) for _ in range(n)]
    return [" ".join(a for a, _ in pairs) for pairs in chosen], [
        " ".join(b for _, b in pairs[::-1]) for pairs in chosen
    ]
