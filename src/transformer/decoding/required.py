"""Phrases that a translation must hold.

Hypotheses compete with those that hold as much as they do, bank by bank, so that one that has just taken an unlikely
step towards a phrase is not pruned by those that have not.

Source: Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation", Sec. 3.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Phrase:
    """What must stand in a translation.

    Attributes:
        spellings: the ways in which it may be written, as tokens; each will do.
        times: how often it must stand.
        not_before: tokens that would make something else of it if they followed, as a digit does of a number; it is
            not written there, unless another phrase has both.
    """

    spellings: tuple[tuple[int, ...], ...]
    times: int = 1
    not_before: frozenset[int] = frozenset()

    def missing(self, tokens: Sequence[int]) -> tuple[int, Sequence[int]]:
        """How many times more it must be written, and the tokens after the last place where it stands."""
        times, start, after = self.times, 0, 0
        while times and start < len(tokens):
            size = max((len(each) for each in self.spellings if _stands(each, tokens, start)), default=0)
            if size and (start + size == len(tokens) or tokens[start + size] not in self.not_before):
                times, start = times - 1, start + size
                after = start
            else:
                start += 1
        return times, tokens[after:]


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
    origin: int
    token: int
    held: int
    ends: bool


def begun(tokens: Sequence[int], spelling: Sequence[int]) -> int:
    """How many tokens of the beginning of a spelling stand at the end."""
    longest = min(len(tokens), len(spelling))
    return next((n for n in range(longest, 0, -1) if _stands(spelling[:n], tokens, len(tokens) - n)), 0)


def held_tokens(tokens: Sequence[int], phrases: Sequence[Phrase]) -> int:
    """Tokens of the phrases that stand, and of the one that has begun; a phrase counts as its longest spelling.

    Of phrases that begin alike one alone has begun: counted for each, their common beginning would be worth more than
    any of them, and hypotheses would repeat it.
    """
    held = under_way = 0
    for phrase in phrases:
        times, rest = phrase.missing(tokens)
        held += (phrase.times - times) * max(map(len, phrase.spellings))
        if times:
            under_way = max(under_way, *(begun(rest, spelling) for spelling in phrase.spellings))
    return held + under_way


def standing(tokens: Sequence[int], phrases: Sequence[Phrase]) -> int:
    """How many of the phrases stand, each as often as it must."""
    return sum(phrase.times - phrase.missing(tokens)[0] for phrase in phrases)


def needed(tokens: Sequence[int], phrases: Sequence[Phrase]) -> Iterator[int]:
    """The next token of each phrase that does not stand yet, and its first where it has begun."""
    for phrase in phrases:
        times, rest = phrase.missing(tokens)
        if times:
            for spelling in phrase.spellings:
                place = begun(rest, spelling)
                yield from (spelling[place], spelling[0]) if place < len(spelling) else (spelling[0],)


def unwanted(tokens: Sequence[int], phrases: Sequence[Phrase]) -> set[int]:
    """Tokens that would make something else of a phrase that has just been written."""
    found: set[int] = set()
    for phrase in phrases:
        if phrase.not_before and any(begun(tokens, each) == len(each) for each in phrase.spellings):
            found |= phrase.not_before
    if found:
        for phrase in phrases:
            ways = ((spelling, begun(tokens, spelling)) for spelling in phrase.spellings)
            found -= {spelling[place] for spelling, place in ways if 0 < place < len(spelling)}
    return found


def option(
    value: float, origin: int, token: int, written: Sequence[int], phrases: Sequence[Phrase], *, ends: bool
) -> Option | None:
    """A continuation, which `ends` the sentence or does not; None where it would end before all phrases stand."""
    if ends:
        is_whole = all(phrase.missing(written)[0] == 0 for phrase in phrases)
        return Option(value, origin, token, held_tokens(written, phrases), ends) if is_whole else None
    return Option(value, origin, token, held_tokens([*written, token], phrases), ends)


def allot(options: Sequence[Option], size: int) -> tuple[list[Option], list[Option]]:
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
