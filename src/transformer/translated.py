"""What a translator gives for a line."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from transformer.decoding import Tokens


@dataclass(frozen=True)
class Alternative:
    """One of the best translations of a line.

    Attributes:
        text: without line ends.
        score: log-probability of its tokens, summed over the pieces of a split line; 0.0 for an empty line.
        value: what it was ranked by: the score after rules, divided by the length penalty, summed likewise.
        pieces: printable tokens, `▁` for a space.
        finished: it ended by itself; False means cut at the limit.
        tokens: its ids, piece of the line by piece, without EOS.
    """

    text: str
    score: float
    value: float
    pieces: tuple[str, ...]
    finished: bool
    tokens: tuple[Tokens, ...] = ()


@dataclass(frozen=True)
class Translation:
    """One translated line.

    Attributes:
        alternatives: the best translations, best first, as many as `Search.n_best` where there are so many.
        flags: what a reader should know, e.g. that the line was cut; empty where all is well.
        sources: ids of the line, piece by piece, each with EOS; none of an empty line.
    """

    alternatives: tuple[Alternative, ...]
    flags: tuple[str, ...] = ()
    sources: tuple[Tokens, ...] = ()

    @property
    def text(self) -> str:
        """The best translation."""
        return self.alternatives[0].text

    @property
    def score(self) -> float:
        """Log-probability of the best translation's tokens."""
        return self.alternatives[0].score


NOTHING = Alternative("", 0.0, 0.0, (), finished=True)
"""The translation of an empty line."""


def lines_done(
    n_lines: int, lines_of_pieces: Iterable[int], done: Callable[[int], None] | None
) -> Callable[[int], None] | None:
    """Counts lines of which the last piece is done.

    Args:
        n_lines: in all; those without pieces are told of at once.
        lines_of_pieces: the line of each piece.
        done: is told how many more lines are done.

    Returns:
        What is to be told the line of each piece that is done; None where no one counts.
    """
    if done is None:
        return None
    left = Counter(lines_of_pieces)
    done(n_lines - len(left))

    def one(line: int) -> None:
        left[line] -= 1
        if not left[line]:
            done(1)

    return one
