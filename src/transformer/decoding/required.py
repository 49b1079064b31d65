"""Phrases that a translation must hold.

Hypotheses compete with those that hold as much as they do, bank by bank, so that one that has just taken an unlikely
step towards a phrase is not pruned by those that have not.

Source: Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation", Sec. 3.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transformer.text.control import EOS_ID

Spellings = Sequence[Sequence[int]]
"""The ways in which one phrase may be written; each will do."""


@dataclass(frozen=True)
class Option:
    """A continuation of one hypothesis.

    Attributes:
        value: sum of worths, the new token's included.
        origin: which hypothesis is continued.
        token: the new token.
        held: tokens of phrases that it then holds.
    """

    value: float
    origin: int
    token: int
    held: int


def holds(tokens: Sequence[int], phrase: Sequence[int]) -> bool:
    """Whether a phrase stands somewhere in the tokens."""
    n = len(phrase)
    return any(list(tokens[start : start + n]) == list(phrase) for start in range(len(tokens) - n + 1))


def begun(tokens: Sequence[int], phrase: Sequence[int]) -> int:
    """How many tokens of the beginning of a phrase stand at the end."""
    longest = min(len(tokens), len(phrase))
    return next((n for n in range(longest, 0, -1) if list(tokens[-n:]) == list(phrase[:n])), 0)


def is_held(tokens: Sequence[int], phrase: Spellings) -> bool:
    """Whether a phrase stands in the tokens, in any spelling."""
    return any(holds(tokens, spelling) for spelling in phrase)


def held_tokens(tokens: Sequence[int], phrases: Sequence[Spellings]) -> int:
    """Tokens of the phrases that stand, and of those that have begun; a phrase counts as its longest spelling."""
    return sum(
        max(map(len, phrase)) if is_held(tokens, phrase) else max(begun(tokens, spelling) for spelling in phrase)
        for phrase in phrases
    )


def needed(tokens: Sequence[int], phrases: Sequence[Spellings]) -> Iterator[int]:
    """The next token of each phrase that does not stand yet, and its first where it has begun."""
    for phrase in phrases:
        if not is_held(tokens, phrase):
            for spelling in phrase:
                yield spelling[begun(tokens, spelling)]
                yield spelling[0]


def option(
    value: float, origin: int, token: int, written: Sequence[int], phrases: Sequence[Spellings]
) -> Option | None:
    """A continuation; None where it would end before all phrases stand."""
    if token == EOS_ID:
        ends = all(is_held(written, phrase) for phrase in phrases)
        return Option(value, origin, token, held_tokens(written, phrases)) if ends else None
    return Option(value, origin, token, held_tokens([*written, token], phrases))


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
        goes_on = [each for each in banks[held] if each.token != EOS_ID]
        ended += [each for each in banks[held][: max(1, share)] if each.token == EOS_ID]
        followed += goes_on[:share]
    left = [each for bank in banks.values() for each in bank if each.token != EOS_ID and each not in followed]
    followed += sorted(left, key=lambda option: -option.value)[: size - len(followed)]
    return sorted(followed, key=lambda option: -option.value), ended
