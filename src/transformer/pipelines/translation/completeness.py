"""Detection of translations that lack sentences of their source."""

from typing import Final

MISSING_PART: Final = 0.5
"""Part of a sentence of mean length by which a translation must be too short."""


def lacks_sentences(n_sentences: tuple[int, int], n_tokens: tuple[int, int], length_ratio: float) -> bool:
    """Whether a translation seems to lack sentences: it has fewer than its source, and is shorter accordingly.

    A translation of all sentences may have fewer, because it joins some, or because its script does not mark their
    ends; then it is not shorter than others.

    Args:
        n_sentences: Number of sentences of the source and of the translation.
        n_tokens: Number of tokens of both.
        length_ratio: Mean number of target tokens per source token in the training text.
    """
    if n_sentences[1] >= n_sentences[0]:
        return False
    return n_tokens[1] < length_ratio * n_tokens[0] * (n_sentences[0] - MISSING_PART) / n_sentences[0]
