"""Detection of degenerate output: repetition loops."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

LOOP_REPEATS: Final = 4
"""Minimum number of consecutive repetitions that make a loop."""
LOOP_TOKENS: Final = 8
"""Minimum number of tokens that a loop covers, since the number 10000 may be five tokens."""


def repeats_itself(tokens: Sequence[int]) -> bool:
    """Whether some sequence of tokens occurs four times in a row or more, over eight tokens or more."""
    if len(set(tokens)) > len(tokens) - (LOOP_REPEATS - 1) or max(Counter(tokens).values()) < LOOP_REPEATS:
        return False
    for period in range(1, len(tokens) // LOOP_REPEATS + 1):
        required = max(LOOP_REPEATS * period, LOOP_TOKENS) - period
        run = 0  # consecutive positions whose token equals that of one period before
        for previous, current in zip(tokens, tokens[period:], strict=False):
            run = run + 1 if previous == current else 0
            if run == required:
                return True
    return False
