"""Estimates of the work of texts, learned from the results."""

import math
import time
from collections.abc import Mapping
from typing import Any, Final

from transformer.serving.interfaces import Item, Job, Task

TYPICAL_CONTINUATION: Final = 128
"""Number of tokens up to which a continuation counts as work: most end before their limit."""
INITIAL_TOKENS_PER_CHARACTER: Final = 0.3
HALF_LIFE_CHARACTERS: Final = 20_000
"""Number of characters after which earlier texts count for half."""
HALF_LIFE_SECONDS: Final = 30
"""Time after which earlier work counts for half in the rate."""
TOKEN_COUNTS: Final[Mapping[str, str]] = {
    "translate": "source_tokens", "generate": "prompt_tokens", "embed": "tokens", "classify": "tokens",
    "fill": "tokens",
}  # fmt: skip
"""Entry of a result that has the number of tokens of the text, by task."""
MAX_DELAY_SHARE: Final = 0.1
"""Share of the time of a batch that its worker may wait for the next requests of the same clients."""
MAX_DELAY_SECONDS: Final = 0.005


class TokenEstimator:
    """Estimates the number of tokens of texts, which the server's process cannot tokenize."""

    def __init__(self) -> None:
        self._characters = float(HALF_LIFE_CHARACTERS)
        self._tokens = INITIAL_TOKENS_PER_CHARACTER * HALF_LIFE_CHARACTERS

    def estimate(self, job: Job, item: Item, default_beam: int) -> int:
        """Returns the estimated number of tokens of an item; each hypothesis of a beam counts.

        Args:
            job: Job of the item, whose options name the beam.
            item: The item.
            default_beam: Beam size of a translation that names none.
        """
        length = len(item.text) + len(item.second) + len(item.prefix)
        tokens = 1 + math.ceil(length * self._tokens / self._characters)
        if job.task == "generate":
            tokens += min(_positive_int(job.options.get("max_tokens")) or TYPICAL_CONTINUATION, TYPICAL_CONTINUATION)
        beam = _positive_int(job.options.get("beam")) or (default_beam if job.task == "translate" else 1)
        return tokens * max(beam, _positive_int(job.options.get("n_best")))

    def learn(self, task: Task, item: Item, result: Mapping[str, Any]) -> None:
        """Learns from the result of an item."""
        tokens = _positive_int(result.get(TOKEN_COUNTS.get(task, "")))
        if tokens and item.text:
            decay = 0.5 ** (len(item.text) / HALF_LIFE_CHARACTERS)
            self._characters = self._characters * decay + len(item.text)
            self._tokens = self._tokens * decay + tokens


class Throughput:
    """Rate of finished work, in tokens a second."""

    def __init__(self) -> None:
        self._tokens, self._seconds, self._last = 0.0, 0.0, time.monotonic()

    def add(self, tokens: int, seconds: float) -> None:
        """Adds a finished batch.

        Args:
            tokens: Estimated number of its tokens.
            seconds: Time that it took.
        """
        now = time.monotonic()
        decay = 0.5 ** ((now - self._last) / HALF_LIFE_SECONDS)
        self._tokens, self._seconds = self._tokens * decay + tokens, self._seconds * decay + seconds
        self._last = now

    def seconds(self, tokens: int, n_workers: int) -> float:
        """Returns the estimated time that workers need for a number of tokens; 1 s if nothing is known yet."""
        if not self._tokens:
            return 1.0
        return tokens * self._seconds / self._tokens / max(n_workers, 1)


def _positive_int(value: Any) -> int:
    """Returns an option that should be a positive number; 0 for anything else, which the worker refuses."""
    return value if isinstance(value, int) and 0 < value < 1 << 20 else 0


class BatchingDelay:
    """A short wait for the next requests of clients that were just answered, to batch them together.

    Without it, the first of them would be a batch of its own, and all others would wait until that has ended.
    """

    def __init__(self) -> None:
        self._n_expected, self._end = 0, -math.inf

    def batch_ended(self, n_items: int, seconds: float, now: float) -> None:
        """Starts the wait after a batch whose clients are being answered.

        Args:
            n_items: Number of its items.
            seconds: Time that it took.
            now: Value of `time.monotonic()`.
        """
        self._n_expected = n_items
        self._end = now + min(MAX_DELAY_SHARE * seconds, MAX_DELAY_SECONDS) if n_items > 1 else -math.inf

    def seconds_left(self, n_waiting: int, now: float) -> float:
        """Returns the remaining wait before the next batch; 0 once as many items wait as the last batch had."""
        return max(0.0, self._end - now) if n_waiting < self._n_expected else 0.0
