"""Running text in passages, encoded to the tokens that the whole would have."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from transformer.text.tokenizer import Tokenizer

LINES, MOST_LINES = 64, 4096
"""Lines of a passage: at least so many, and at most, where no good place to cut comes."""
AT_ONCE: Final = 16
"""Passages that are encoded side by side."""


@dataclass(frozen=True)
class Passage:
    """Some lines of a running text, their ends included.

    Attributes:
        lines: how many they are.
        text: all of them.
        before: the line before; empty at the beginning.
        after: the line after; empty at the end.
    """

    lines: int
    text: str
    before: str = ""
    after: str = ""


def passages(lines: Iterable[str]) -> Iterator[Passage]:
    """Yields the lines of a text in passages.

    They are cut where one line ends in a sign and the next begins with one: a tokenizer may make one token of several
    line ends and spaces, but not of these.

    Args:
        lines: with their ends.
    """
    own: list[str] = []
    before = ""
    for line in lines:
        may_cut = len(own) >= LINES and not own[-1][-2:-1].isspace() and len(own[-1]) > 1 and not line[:1].isspace()
        if may_cut or len(own) >= MOST_LINES:
            yield Passage(len(own), "".join(own), before, line)
            before, own = own[-1], []
        own.append(line)
    if own:
        yield Passage(len(own), "".join(own), before)


def encode_lines(tokenizer: Tokenizer, lines: Iterable[str]) -> Iterator[tuple[int, list[int]]]:
    """Yields the tokens of a running text part by part, each with how many lines it has.

    Args:
        tokenizer: of the text.
        lines: with their ends.
    """
    waiting = passages(lines)
    while some := list(islice(waiting, AT_ONCE)):
        found = tokenizer.encode_running([each.text for each in some], [(each.before, each.after) for each in some])
        yield sum(each.lines for each in some), list(chain.from_iterable(found))
