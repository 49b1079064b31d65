"""Continuous batching: requests that wait to join a batch."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from transformer.decoding.beam_state import BeamState
from transformer.decoding.request import Request


@dataclass
class RequestQueue:
    """Continuous batching: the requests that wait to join the batch.

    Attributes:
        requests: Numbered requests that have not been read.
        max_tokens: Maximum of sentences x tokens of the longest source in a batch.
        refill_below: Fraction of `max_tokens` below which requests join a batch that is not empty.
        pending: Requests that have been read, but have not joined.
    """

    requests: Iterator[tuple[int, Request]]
    max_tokens: int
    refill_below: float
    pending: deque[tuple[int, Request]] = field(default_factory=deque[tuple[int, Request]])

    def admit(self, beams: BeamState | None) -> list[tuple[int, Request]]:
        """Returns the next requests that fit into the batch; none while it is filled above `refill_below`."""
        lengths = [len(sentence.request.source) for sentence in beams.sentences] if beams else []
        longest, n = max(lengths, default=0), len(lengths)
        if n and n * longest >= self.refill_below * self.max_tokens:
            return []
        admitted: list[tuple[int, Request]] = []
        while self.pending or self._read():
            longest = max(longest, len(self.pending[0][1].source))
            if n and (n + 1) * longest > self.max_tokens:
                break
            admitted.append(self.pending.popleft())
            n += 1
        return admitted

    def _read(self) -> bool:
        self.pending.extend(islice(self.requests, 1))
        return bool(self.pending)
