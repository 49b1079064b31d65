"""Shards, and what can be divided into them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Progress = Callable[[int], None]
"""Callback that is given the number of bytes read since its last call."""


@dataclass(frozen=True)
class Shard:
    """Consecutive items of an input, such as lines.

    Attributes:
        index: Number of the shard, from 0.
        first: Number of the items before it.
        n_items: Number of its items.
        positions: Where it begins in each file of the input.
    """

    index: int
    first: int
    n_items: int
    positions: tuple[int, ...] = ()


class Source(Protocol):
    """Input of a job."""

    @property
    def unit(self) -> str:
        """Name of its items, such as "lines"."""
        ...

    @property
    def sequential(self) -> Sequence[Path]:
        """Files that can be read from their beginning alone."""
        ...

    def facts(self) -> Any:
        """Returns what tells this input from others, as JSON values; every worker compares it."""
        ...

    def divide(self, n_shards: int, done: Progress) -> tuple[Shard, ...]:
        """Divides the input into shards, which one of the workers does.

        Args:
            n_shards: Maximum number of shards; none of them is empty.
            done: Callback for progress.
        """
        ...


def no_progress(n_bytes: int) -> None:
    """Shows nothing."""
