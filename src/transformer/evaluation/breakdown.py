"""Where translations are good and where they are not: by length, by frequency of words, line by line."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from transformer.evaluation.scores import Tokenization, corpus_scores, sentence_scores

LENGTHS: Final = (10, 20, 30, 40, 60)
"""Most words of the sources of each class but the last."""
FREQUENCIES: Final = (0, 1, 4, 9, 99, 999)
"""Most occurrences of the words of each class but the last."""

Words = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class LengthClass:
    """Lines whose sources are of like length.

    Attributes:
        name: e.g. "11-20".
        lines: how many.
        bleu: of each system on them.
        chrf: likewise.
    """

    name: str
    lines: int
    bleu: tuple[float, ...]
    chrf: tuple[float, ...]


@dataclass(frozen=True)
class FrequencyClass:
    """Words that occur about equally often in the training text.

    Attributes:
        name: e.g. "5-9".
        words: of the reference, running.
        f1: of each system, 0 to 100: harmonic mean of the share of these words of its translations that the reference
            has in the same line, and the share of the reference's that it has.
    """

    name: str
    words: int
    f1: tuple[float, ...]


@dataclass(frozen=True)
class Line:
    """One line and how well each system translates it.

    Attributes:
        number: from 1.
        translations: of each system.
        chrf: of each.
    """

    number: int
    translations: tuple[str, ...]
    chrf: tuple[float, ...]


def by_length(
    sources: Sequence[str], systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]],
    tokenize: Tokenization = "13a",
) -> list[LengthClass]:  # fmt: skip
    """Scores by words of the source, split at spaces; classes without a line are left out."""
    members: dict[str, list[int]] = {name: [] for name in _names(LENGTHS, 1)}
    for index, source in enumerate(sources):
        members[_class(len(source.split()), LENGTHS, 1)].append(index)
    classes: list[LengthClass] = []
    for name, lines in members.items():
        if lines:
            targets = [[reference[index] for index in lines] for reference in references]
            found = [corpus_scores([system[index] for index in lines], targets, tokenize) for system in systems]
            bleu, chrf = zip(*((first.value, second.value) for first, second in found), strict=True)
            classes.append(LengthClass(name, len(lines), bleu, chrf))
    return classes


def by_frequency(
    systems: Sequence[Sequence[str]], reference: Sequence[str], counts: Mapping[str, int], words: Words
) -> list[FrequencyClass]:
    """How many words of the reference each system finds, by how often they occur.

    Args:
        systems: translations of each.
        reference: what they should be.
        counts: occurrences of words, as of `word_counts`.
        words: splits a line.

    Source: Neubig et al. 2019, "compare-mt: A Tool for Holistic Comparison of Language Generation Systems", Sec. 3.2.
    """
    names = _names(FREQUENCIES, 0)
    wanted = Counter[str]()
    written, found = ([Counter[str]() for _ in systems] for _ in range(2))
    for index, line in enumerate(reference):
        theirs = Counter(words(line))
        _add(wanted, theirs, counts)
        for system, lines in enumerate(systems):
            ours = Counter(words(lines[index]))
            _add(written[system], ours, counts)
            _add(found[system], ours & theirs, counts)
    return [
        FrequencyClass(name, wanted[name], tuple(
            200 * found[system][name] / max(1, wanted[name] + written[system][name]) for system in range(len(systems))
        ))
        for name in names
        if wanted[name]
    ]  # fmt: skip


def word_counts(lines: Iterable[str], words: Words) -> Counter[str]:
    """How often each word occurs."""
    counts = Counter[str]()
    for line in lines:
        counts.update(words(line))
    return counts


def words_of(tokenize: Tokenization) -> Words:
    """Splits a line as BLEU does."""
    from sacrebleu.metrics.bleu import BLEU  # takes a moment to load

    split = BLEU(tokenize=tokenize, force=True).tokenizer
    return lambda line: str(split(line)).split()


def most_telling(systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]], n: int) -> list[Line]:
    """The lines on which systems differ most, none on which they agree; or the worst of a single one."""
    scores = [sentence_scores(system, references) for system in systems]

    def spread(index: int) -> float:
        own = [score[index] for score in scores]
        return max(own) - min(own) if len(own) > 1 else -own[0]

    differ = [index for index, texts in enumerate(zip(*systems, strict=True)) if len({*texts}) > 1 or len(systems) == 1]
    order = sorted(differ, key=lambda index: (-spread(index), index))[:n]
    return [
        Line(index + 1, tuple(system[index] for system in systems), tuple(score[index] for score in scores))
        for index in order
    ]


def _add(sums: Counter[str], words: Counter[str], counts: Mapping[str, int]) -> None:
    for word, times in words.items():
        sums[_class(counts.get(word, 0), FREQUENCIES, 0)] += times


def _class(value: int, bounds: Sequence[int], least: int) -> str:
    names = _names(bounds, least)
    return next((name for name, most in zip(names, bounds, strict=False) if value <= most), names[-1])


def _names(bounds: Sequence[int], least: int) -> list[str]:
    """E.g. 1-10, 11-20 and 21+; a class of one number is that number."""
    firsts = [least, *(most + 1 for most in bounds)]
    names = [str(most) if first == most else f"{first}-{most}" for first, most in zip(firsts, bounds, strict=False)]
    return [*names, f"{firsts[-1]}+"]
