"""Detection of translations that lack sentences of their source."""

from typing import Final

from transformer.text.sentences import count_sentences

MISSING_PART: Final = 0.5
"""Part of a sentence of mean length by which a translation must be too short."""


def lacks_sentences(
    source: str, translation: str, n_tokens: tuple[int, int], length_ratio: float, languages: tuple[str, str]
) -> bool:
    """Whether a translation seems to lack sentences: it has fewer than its source, and is shorter accordingly.

    A translation of all sentences may have fewer, because it joins some, or because its script does not mark their
    ends; then it is not shorter than others.

    Args:
        source: Source text.
        translation: Its translation.
        n_tokens: Number of tokens of both.
        length_ratio: Mean number of target tokens per source token in the training text.
        languages: Languages of both (BCP 47); "" if not known.
    """
    n_source = count_sentences(source, languages[0])
    if n_source < 2 or count_sentences(translation, languages[1]) >= n_source:
        return False
    expected = length_ratio * n_tokens[0]
    return n_tokens[1] < expected * (n_source - MISSING_PART) / n_source
