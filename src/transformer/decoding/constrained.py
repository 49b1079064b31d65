"""Phrases that a translation must hold.

Hypotheses compete with those that hold as much as they do, bank by bank, so that one that has just taken an unlikely
step towards a phrase is not pruned by those that have not.

Source: Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation", Sec. 3.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Constraint:
    """What must stand in a translation.

    Attributes:
        spellings: the ways in which it may be written, as tokens; each will do.
        times: how often it must stand.
        not_before: tokens that would make something else of it if they followed, as a digit does of a number; it is
            not written there, unless another phrase has both.
        joined: those of the spellings that follow no space.
        not_after: tokens that would make something else of these if they came before; they may be written there, but do
            not count.
    """

    spellings: tuple[tuple[int, ...], ...]
    times: int = 1
    not_before: frozenset[int] = frozenset()
    joined: frozenset[tuple[int, ...]] = frozenset()
    not_after: frozenset[int] = frozenset()

    def missing(self, tokens: Sequence[int]) -> tuple[int, int]:
        """How many times more it must be written, and where the tokens begin after the last place where it stands."""
        times, start, after = self.times, 0, 0
        while times and start < len(tokens):
            sizes = (len(each) for each in self._counting(tokens, start) if _stands(each, tokens, start))
            size = max(sizes, default=0)
            if size and (start + size == len(tokens) or tokens[start + size] not in self.not_before):
                times, start = times - 1, start + size
                after = start
            else:
                start += 1
        return times, after

    def begun(self, tokens: Sequence[int], after: int = 0) -> Iterator[tuple[tuple[int, ...], int]]:
        """Each spelling, and how many tokens of its beginning stand at the end, of those from a place on."""
        for spelling in self.spellings:
            starts = range(max(after, len(tokens) - len(spelling)), len(tokens))
            counts = (
                len(tokens) - start
                for start in starts
                if _stands(spelling[: len(tokens) - start], tokens, start) and spelling in self._counting(tokens, start)
            )
            yield spelling, next(counts, 0)

    def _counting(self, tokens: Sequence[int], start: int) -> Sequence[tuple[int, ...]]:
        """The spellings that count where they begin there."""
        is_part = self.joined and start and tokens[start - 1] in self.not_after
        return [each for each in self.spellings if each not in self.joined] if is_part else self.spellings


def _stands(spelling: Sequence[int], tokens: Sequence[int], start: int) -> bool:
    return list(tokens[start : start + len(spelling)]) == list(spelling)


@dataclass(frozen=True)
class Option:
    """A continuation of one hypothesis.

    Attributes:
        value: sum of worths, the new token's included.
        origin: which hypothesis is continued.
        token: the new token.
        held: tokens of phrases that it then holds.
        ends: it ends the sentence.
    """

    value: float
    beam_index: int
    token: int
    held: int
    ends: bool


def held_tokens(tokens: Sequence[int], phrases: Sequence[Constraint]) -> int:
    """Tokens of the phrases that stand, and of the one that has begun; a phrase counts as its longest spelling.

    Of phrases that begin alike one alone has begun: counted for each, their common beginning would be worth more than
    any of them, and hypotheses would repeat it.
    """
    held = under_way = 0
    for phrase in phrases:
        times, after = phrase.missing(tokens)
        held += (phrase.times - times) * max(map(len, phrase.spellings))
        if times:
            under_way = max(under_way, *(count for _, count in phrase.begun(tokens, after)))
    return held + under_way


def standing(tokens: Sequence[int], phrases: Sequence[Constraint]) -> int:
    """How many of the phrases stand, each as often as it must."""
    return sum(phrase.times - phrase.missing(tokens)[0] for phrase in phrases)


def next_constraint_tokens(tokens: Sequence[int], phrases: Sequence[Constraint]) -> Iterator[int]:
    """The next token of each phrase that does not stand yet, and its first where it has begun."""
    for phrase in phrases:
        times, after = phrase.missing(tokens)
        if times:
            for spelling, place in phrase.begun(tokens, after):
                yield from (spelling[place], spelling[0]) if place < len(spelling) else (spelling[0],)


def forbidden_continuations(tokens: Sequence[int], phrases: Sequence[Constraint]) -> set[int]:
    """Tokens that would make something else of a phrase that has just been written."""
    found: set[int] = set()
    for phrase in phrases:
        if phrase.not_before and any(count == len(spelling) for spelling, count in phrase.begun(tokens)):
            found |= phrase.not_before
    if found:
        for phrase in phrases:
            found -= {spelling[place] for spelling, place in phrase.begun(tokens) if 0 < place < len(spelling)}
    return found


def option(
    value: float, beam_index: int, token: int, written: Sequence[int], phrases: Sequence[Constraint], *, ends: bool
) -> Option | None:
    """A continuation, which `ends` the sentence or does not; None where it would end before all phrases stand."""
    if ends:
        is_whole = all(phrase.missing(written)[0] == 0 for phrase in phrases)
        return Option(value, beam_index, token, held_tokens(written, phrases), ends) if is_whole else None
    return Option(value, beam_index, token, held_tokens([*written, token], phrases), ends)


def allocate_banks(options: Sequence[Option], size: int) -> tuple[list[Option], list[Option]]:
    """Which options to follow, and which have ended.

    The room is divided among the banks (options that hold equally much), the rest of the division going to those that
    hold most; what a bank cannot fill is left to the best of all others.

    Args:
        options: different continuations.
        size: most to follow.
    """
    banks: dict[int, list[Option]] = defaultdict(list)
    for each in sorted(options, key=lambda option: -option.value):
        banks[each.held].append(each)
    followed: list[Option] = []
    ended: list[Option] = []
    for place, held in enumerate(sorted(banks, reverse=True)):
        share = size // len(banks) + (place < size % len(banks))
        goes_on = [each for each in banks[held] if not each.ends]
        ended += [each for each in banks[held][: max(1, share)] if each.ends]
        followed += goes_on[:share]
    left = [each for bank in banks.values() for each in bank if not each.ends and each not in followed]
    followed += sorted(left, key=lambda option: -option.value)[: size - len(followed)]
    return sorted(followed, key=lambda option: -option.value), ended
