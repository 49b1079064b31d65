"""Breakdowns of translation quality: by sentence length, by word frequency, and line by line."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from transformer.evaluation.scores import corpus_scores, is_rightly_blank, make_bleu, sentence_scores
from transformer.evaluation.tokenization import UNSPACED, Tokenization, TokenizationChoice, fitting_tokenization

LENGTHS: Final = (10, 20, 30, 40, 60)
"""Upper bounds of the length buckets, in words of the source; the last bucket is open."""
FREQUENCIES: Final = (0, 1, 4, 9, 99, 999)
"""Upper bounds of the frequency buckets, in occurrences in the training text; the last bucket is open."""

Words = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class LengthBucket:
    """Scores on the lines whose sources have a similar length.

    Attributes:
        name: Range of lengths in words, e.g. "11-20".
        lines: Number of lines.
        bleu: BLEU of each system on these lines.
        chrf: chrF of each system on these lines.
    """

    name: str
    lines: int
    bleu: tuple[float, ...]
    chrf: tuple[float, ...]


@dataclass(frozen=True)
class FrequencyBucket:
    """Scores on the words that occur about equally often in the training text.

    Attributes:
        name: Range of frequencies, e.g. "5-9".
        words: Number of such words (tokens, not types) in the reference.
        f1: F1 of each system, 0 to 100: the harmonic mean of precision and recall of these words, matched line by line.
    """

    name: str
    words: int
    f1: tuple[float, ...]


@dataclass(frozen=True)
class Line:
    """One line with its translations.

    Attributes:
        number: Line number, from 1.
        translations: Translation of each system.
        chrf: chrF of each translation.
    """

    number: int
    translations: tuple[str, ...]
    chrf: tuple[float, ...]


def by_length(
    sources: Sequence[str], systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]],
    tokenize: TokenizationChoice = "auto", source_language: str | None = None,
) -> list[LengthBucket]:  # fmt: skip
    """Computes scores by the number of words of the source; empty buckets are omitted.

    Words are split at spaces, or as BLEU does if the source is in a script without spaces.
    """
    source_tokenization = fitting_tokenization(sources, source_language)
    words = make_word_splitter(source_tokenization) if source_tokenization in UNSPACED else str.split
    buckets: dict[str, list[int]] = {name: [] for name in _bucket_names(LENGTHS, 1)}
    for index, source in enumerate(sources):
        buckets[_bucket_name(len(words(source)), LENGTHS, 1)].append(index)
    results: list[LengthBucket] = []
    for name, lines in buckets.items():
        if lines:
            targets = [[reference[index] for index in lines] for reference in references]
            scores = [corpus_scores([system[index] for index in lines], targets, tokenize) for system in systems]
            bleu, chrf = zip(*((first.value, second.value) for first, second in scores), strict=True)
            results.append(LengthBucket(name, len(lines), bleu, chrf))
    return results


def by_frequency(
    systems: Sequence[Sequence[str]], reference: Sequence[str], counts: Mapping[str, int], words: Words
) -> list[FrequencyBucket]:
    """Computes the F1 of the words of each system, by their frequency.

    Args:
        systems: Translations of each system.
        reference: Reference translations.
        counts: Word frequencies, as returned by `word_counts`.
        words: Function that splits a line into words.

    Source: Neubig et al. 2019, "compare-mt: A Tool for Holistic Comparison of Language Generation Systems".
    """
    names = _bucket_names(FREQUENCIES, 0)
    n_reference = Counter[str]()
    n_output, n_matched = ([Counter[str]() for _ in systems] for _ in range(2))
    for index, line in enumerate(reference):
        reference_words = Counter(words(line))
        _add(n_reference, reference_words, counts)
        for system, lines in enumerate(systems):
            output_words = Counter(words(lines[index]))
            _add(n_output[system], output_words, counts)
            _add(n_matched[system], output_words & reference_words, counts)
    return [
        FrequencyBucket(name, n_reference[name], tuple(
            200 * n_matched[system][name] / max(1, n_reference[name] + n_output[system][name])
            for system in range(len(systems))
        ))
        for name in names
        if n_reference[name]
    ]  # fmt: skip


def word_counts(lines: Iterable[str], words: Words) -> Counter[str]:
    """Counts the occurrences of each word."""
    counts = Counter[str]()
    for line in lines:
        counts.update(words(line))
    return counts


def make_word_splitter(tokenize: Tokenization) -> Words:
    """Returns a function that splits a line into words as BLEU does."""
    split = make_bleu(tokenize).tokenizer
    return lambda line: str(split(line)).split()


def most_different_lines(systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]], n: int) -> list[Line]:
    """Returns the `n` lines whose chrF differs most between systems; for a single system, those with the lowest chrF.

    Lines that all systems translate alike are omitted, and those that a single system rightly leaves blank.
    """
    scores = [sentence_scores(system, references) for system in systems]

    def spread(index: int) -> float:
        line_scores = [score[index] for score in scores]
        return max(line_scores) - min(line_scores) if len(line_scores) > 1 else -line_scores[0]

    def is_telling(index: int) -> bool:
        texts = [system[index] for system in systems]
        if len(texts) > 1:
            return len({*texts}) > 1
        return not is_rightly_blank(texts[0], [reference[index] for reference in references])

    candidates = filter(is_telling, range(len(systems[0])))
    order = sorted(candidates, key=lambda index: (-spread(index), index))[:n]
    return [
        Line(index + 1, tuple(system[index] for system in systems), tuple(score[index] for score in scores))
        for index in order
    ]


def _add(sums: Counter[str], words: Counter[str], counts: Mapping[str, int]) -> None:
    for word, times in words.items():
        sums[_bucket_name(counts.get(word, 0), FREQUENCIES, 0)] += times


def _bucket_name(value: int, bounds: Sequence[int], lowest: int) -> str:
    names = _bucket_names(bounds, lowest)
    return next((name for name, upper in zip(names, bounds, strict=False) if value <= upper), names[-1])


def _bucket_names(bounds: Sequence[int], lowest: int) -> list[str]:
    """Returns names such as 1-10, 11-20 and 21+; a bucket of a single number is named by that number."""
    lowers = [lowest, *(upper + 1 for upper in bounds)]
    names = [str(upper) if lower == upper else f"{lower}-{upper}" for lower, upper in zip(lowers, bounds, strict=False)]
    return [*names, f"{lowers[-1]}+"]
