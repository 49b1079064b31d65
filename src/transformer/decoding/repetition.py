"""Output that repeats itself."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

LOOP_TIMES: Final = 4
"""A sequence that stands so often in a row is a loop, ..."""
LOOP_TOKENS: Final = 8
"""... if it takes at least so many tokens: 10000 may be five."""


def repeats_itself(tokens: Sequence[int]) -> bool:
    """Whether some sequence of tokens stands four times in a row or more, over eight tokens or more."""
    if not tokens or max(Counter(tokens).values()) < LOOP_TIMES:
        return False
    for period in range(1, len(tokens) // LOOP_TIMES + 1):
        enough = max(LOOP_TIMES * period, LOOP_TOKENS) - period
        run = 0  # positions in a row whose token is that of one period before
        for before, after in zip(tokens, tokens[period:], strict=False):
            run = run + 1 if before == after else 0
            if run == enough:
                return True
    return False
